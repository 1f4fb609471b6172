// Package upgrade lets the last data of connections that a proxy upgraded from HTTP reach the client.
//
// apimachinery's proxy closes both connections of an upgraded request when either direction ends. When a backend has written everything and
// closes while the client still sends, the write to the backend fails first, and the backend's last data (with exec, the exit code of a
// process) is lost in the proxy. And a connection that is closed with unread input is reset, which again loses data that was not sent yet.
//
// It must not import anything else of skiff.
package upgrade

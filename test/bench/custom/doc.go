// Command custom measures what an API that users extend costs a server: custom objects, definitions that nobody uses, webhooks and policies.
//
//	custom --kubeconfig FILE [--only memory,create,get,list,update,watch,webhook,policy] [--pid PID]... [sizes]
//	custom --kubeconfig FILE --only definitions --kubectl PROGRAM [--count N] [--schema BYTES] [--pid PID]...
//	custom --kubeconfig FILE --only served [--count N]
//
// Like kbench it prints a line per measurement: name, value, unit. With the processes of the server in --pid it adds what they used of the
// processors per operation, by the kernel's clock of each process, and their memory. It sends and reads JSON without building objects of it, so
// that the server is what is measured. What it creates stays: the server is thrown away afterwards.
//
// It must not import the API server of skiff, its store or its cache: it measures any server over the network.
package main

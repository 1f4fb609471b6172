/* skiff is the CNI plugin of skiff's own network. It only passes calls on, to the skiff that runs on this node and attaches pods by itself: that
   one need not start anew, and find out what it knew, for every pod. What is sent is what CNI said: four variables, each ended by a zero byte, and
   the configuration, whose field "socket" says where to. What comes back is the exit status, as a digit, and what is to be printed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	LIMIT = 1 << 20, /* bytes of a configuration, and of an answer */
	PATIENCE = 60,   /* seconds to wait for skiff */
	INVALID = 7,     /* codes of CNI: the configuration is of no use, */
	LATER = 11,      /* and nothing is wrong with it, but skiff is away */
};

static const char *variables[] = {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"};
static char config[LIMIT + 2], answer[LIMIT + 2];

static int fail(int code, const char *what, const char *why) {
	printf("{\"cniVersion\":\"1.0.0\",\"code\":%d,\"msg\":\"%s\",\"details\":\"%s\"}\n", code, what, why);
	return EXIT_FAILURE;
}

static int later(const char *what) { return fail(LATER, what, strerror(errno)); }

/* read_all reads until the end, or until there is no room. */
static ssize_t read_all(int from, char *to, size_t room) {
	size_t have = 0;
	while (have < room) {
		ssize_t got = read(from, to + have, room - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		have += got;
	}
	return have;
}

static int send_all(int to, const char *from, size_t size) {
	while (size > 0) {
		ssize_t sent = send(to, from, size, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -1;
		from += sent;
		size -= sent;
	}
	return 0;
}

/* find_socket puts the value of the field "socket" into an address. Within a text of the configuration the quotes would be escaped. */
static int find_socket(const char *text, struct sockaddr_un *address) {
	static const char field[] = "\"socket\"", space[] = " \t\r\n";
	while ((text = strstr(text, field))) {
		text += strlen(field);
		text += strspn(text, space);
		if (*text != ':')
			continue; /* a value, not a field */
		text++;
		text += strspn(text, space);
		if (*text != '"')
			return -1;
		size_t length = strcspn(++text, "\"\\");
		if (text[length] != '"' || length == 0 || length >= sizeof address->sun_path)
			return -1;
		memcpy(address->sun_path, text, length);
		return 0;
	}
	return -1;
}

int main(void) {
	const char *command = getenv(variables[0]);
	if (command && strcmp(command, "VERSION") == 0) {
		puts("{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"1.0.0\",\"1.1.0\"]}");
		return EXIT_SUCCESS;
	}
	ssize_t size = read_all(STDIN_FILENO, config, LIMIT + 1);
	if (size < 0)
		return later("the configuration of the network cannot be read");
	if (size > LIMIT)
		return fail(INVALID, "the configuration of the network is larger than 1 MiB", "");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (find_socket(config, &address) < 0)
		return fail(INVALID, "the configuration of the network has no usable field socket", "it says where skiff listens");

	struct timeval patience = {.tv_sec = PATIENCE};
	int skiff = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (skiff < 0 || setsockopt(skiff, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0 ||
	    setsockopt(skiff, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 || connect(skiff, (struct sockaddr *)&address, sizeof address) < 0)
		return later("skiff, which attaches pods to the network, is not there");
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
		const char *value = getenv(variables[i]);
		if (!value)
			value = "";
		if (send_all(skiff, value, strlen(value) + 1) < 0)
			return later("skiff, which attaches pods to the network, has gone away");
	}
	if (send_all(skiff, config, size) < 0 || shutdown(skiff, SHUT_WR) < 0)
		return later("skiff, which attaches pods to the network, has gone away");

	size = read_all(skiff, answer, LIMIT);
	if (size < 0)
		return later("skiff, which attaches pods to the network, does not answer");
	if (size < 1 || (answer[0] != '0' && answer[0] != '1')) {
		errno = EPROTO;
		return later("skiff, which attaches pods to the network, has ended before it answered");
	}
	if (fwrite(answer + 1, 1, size - 1, stdout) != (size_t)(size - 1) || fflush(stdout) != 0)
		return EXIT_FAILURE;
	return answer[0] - '0';
}

/* pause holds the namespaces of a pod while its containers come and go, and reaps orphans where they share its PID namespace. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static void reap(int signal) {
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

static int on(int signal, void (*handler)(int)) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NOCLDSTOP};
	return sigaction(signal, &action, NULL);
}

int main(void) {
	if (on(SIGINT, end) < 0 || on(SIGTERM, end) < 0 || on(SIGCHLD, reap) < 0)
		return EXIT_FAILURE;
	for (;;)
		pause();
}

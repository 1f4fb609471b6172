"""Helps network.sh, in a pod's network namespace:

    network.py serve                    answers at port 7777 whoever asks, one byte with one, and takes what streams send
    network.py await ADDRESS            waits until it answers
    network.py stream ADDRESS SECONDS   sends for so long; prints megabytes per second that arrived
    network.py ask ADDRESS SECONDS      asks and waits for the answer, one after the other; prints how many per second
"""
import socket
import sys
import threading
import time

PORT, LIMIT, PIECE = 7777, 30, 1 << 20


def serve():
    """The first byte says what a connection is for: a stream is told how much arrived when it ends."""
    listener = socket.create_server(("", PORT), backlog=100)

    def answer(connection):
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if connection.recv(1) == b"a":
                while byte := connection.recv(1):
                    connection.sendall(byte)
                return
            buffer, count = bytearray(PIECE), 0
            while n := connection.recv_into(buffer):
                count += n
            connection.sendall(b"%d" % count)

    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def connect(address, purpose):
    s = socket.create_connection((address, PORT), timeout=LIMIT)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(purpose)
    return s


def wait(address):
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            with connect(address, b"a") as s:
                s.sendall(b"?")
                if s.recv(1) == b"?":
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            sys.exit(f"network.py: {address} does not answer")
        time.sleep(0.1)


def stream(address, seconds):
    piece, began = bytes(PIECE), time.monotonic()
    with connect(address, b"s") as s:
        while time.monotonic() - began < seconds:
            s.sendall(piece)
        s.shutdown(socket.SHUT_WR)
        count = int(s.recv(64))
    print(f"{count / 1e6 / (time.monotonic() - began):.0f}")


def ask(address, seconds):
    count, began = 0, time.monotonic()
    with connect(address, b"a") as s:
        while time.monotonic() - began < seconds:
            s.sendall(b"?")
            s.recv(1)
            count += 1
    print(f"{count / seconds:.0f}")


verb, rest = sys.argv[1], sys.argv[2:]
if verb == "serve":
    serve()
elif verb == "await":
    wait(rest[0])
elif verb == "stream":
    stream(rest[0], float(rest[1]))
else:
    ask(rest[0], float(rest[1]))

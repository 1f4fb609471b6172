"""Helps proxy.sh:

    proxy.py KUBECTL KUBECONFIG fill SERVICES ENDPOINTS   makes Services with EndpointSlices, nodes, and a Service that "change" is about
    proxy.py - - await BEGAN PID                          waits until the proxy of this namespace has written its rules; prints seconds since BEGAN, and of it writing
    proxy.py KUBECTL KUBECONFIG change TIMES              changes the endpoint, waits until packets follow; prints the median in milliseconds
    proxy.py KUBECTL KUBECONFIG stream SECONDS            sends through a Service for so long; prints megabytes per second
    proxy.py KUBECTL KUBECONFIG connect SECONDS           connects to a Service for so long; prints connections per second
"""
import base64
import concurrent.futures
import http.client
import json
import os
import re
import select
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

LIMIT = 300  # seconds that anything may take
kubectl, kubeconfig, verb, rest = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
LABEL = "kubernetes.io/service-name"


class API:
    """An API server, by one connection."""

    def __init__(self):
        config = json.loads(subprocess.check_output([kubectl, "--kubeconfig", kubeconfig, "config", "view", "--raw", "--minify", "-o", "json"]))
        self.server, user = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]
        self.context = ssl._create_unverified_context()  # it is on this machine, and who it is does not matter here
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            pem.flush()
            self.context.load_cert_chain(pem.name)
        self.local = threading.local()

    def ask(self, method, path, body=None, kind="application/json"):
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(urllib.parse.urlparse(self.server).netloc, context=self.context, timeout=LIMIT)
        self.local.connection.request(method, path, body and json.dumps(body), {"Content-Type": kind, "Accept": "application/json"})
        response = self.local.connection.getresponse()
        text = response.read()
        if response.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {response.status} {text.decode()}")
        return json.loads(text)


def slice_of(name, addresses, protocol="TCP"):
    endpoints = [{"addresses": [a], "conditions": {"ready": True, "serving": True, "terminating": False}, "nodeName": f"node-{sum(map(ord, a)) % 100 + 100}",
                  "targetRef": {"kind": "Pod", "namespace": "default", "name": f"{name}-pod-{i}", "uid": "00000000-0000-0000-0000-000000000000"}}
                 for i, a in enumerate(addresses)]
    return {"metadata": {"name": name + "-1", "labels": {LABEL: name}}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": protocol}]}


def service(name, protocol="TCP"):
    return {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80, "protocol": protocol, "targetPort": 8080}]}}


SERVICES, SLICES = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def fill(services, each):
    api = API()
    began = time.monotonic()
    for i in (1, 2):
        api.ask("POST", "/api/v1/nodes", {"metadata": {"name": f"node-{i}"}})
        api.ask("PATCH", f"/api/v1/nodes/node-{i}/status", {"status": {"addresses": [{"type": "InternalIP", "address": f"10.9.{i}.2"}]}}, "application/merge-patch+json")

    def make(i):
        numbers = range(i * each, (i + 1) * each)
        api.ask("POST", SERVICES, service(f"svc-{i}"))
        api.ask("POST", SLICES, slice_of(f"svc-{i}", [f"10.{100 + (n >> 16)}.{n >> 8 & 255}.{n & 255}" for n in numbers]))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(services)))
    api.ask("POST", SERVICES, service("stream"))
    api.ask("POST", SLICES, slice_of("stream", ["10.50.0.1"]))
    api.ask("POST", SERVICES, service("probe", "UDP"))
    api.ask("POST", SLICES, slice_of("probe", ["10.50.0.1"], "UDP"))
    print(f"{services} Services with {services * each} endpoints are in the API after {time.monotonic() - began:.0f} s")


def written():
    """How many full syncs of Services there were, and how long they took."""
    with urllib.request.urlopen("http://127.0.0.1:10249/metrics", timeout=10) as r:
        text = r.read().decode()
    # upstream has one for each family: the first of each, at the start
    count = sum(float(v) for v in re.findall(r"^kubeproxy_sync_full_proxy_rules_duration_seconds_count(?:\{[^}]*\})? (\S+)$", text, re.M))
    total = sum(float(v) for v in re.findall(r"^kubeproxy_sync_full_proxy_rules_duration_seconds_sum(?:\{[^}]*\})? (\S+)$", text, re.M))
    families = len(re.findall(r'^kubeproxy_sync_full_proxy_rules_duration_seconds_count\{ip_family', text, re.M)) or 1
    return count >= families, total


def wait(began, pid):
    while time.time() - began < LIMIT:
        try:
            done, total = written()
            if done:
                print(f"{time.time() - began:.3f} {total:.3f}")
                return
        except OSError:
            pass
        os.kill(pid, 0)
        time.sleep(0.02)
    sys.exit("proxy.py: the proxy does not come to an end")


def serve():
    """Answers at both addresses, each with its own."""
    sockets = []
    for address in ("10.50.0.1", "10.50.0.2"):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((address, 8080))
        sockets.append((s, address.encode()))

    def loop(s, text):
        while True:
            _, peer = s.recvfrom(64)
            s.sendto(text, peer)

    for pair in sockets:
        threading.Thread(target=loop, args=pair, daemon=True).start()


def who(address):
    """Who answers for the Service now: every question is a new flow."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((address, 80))
        try:
            s.send(b"?")
            if select.select([s], [], [], 0.05)[0]:
                return s.recv(64).decode()
        except OSError:
            pass
        return None


def change(times):
    api = API()
    serve()
    address = api.ask("GET", SERVICES + "/probe")["spec"]["clusterIP"]
    took = []
    for i in range(times):
        now = api.ask("GET", SLICES + "/probe-1")["endpoints"][0]["addresses"][0]
        deadline = time.monotonic() + LIMIT
        while who(address) != now:
            if time.monotonic() > deadline:
                sys.exit("proxy.py: the Service does not answer")
        time.sleep(2)  # longer than either waits between changes: this is about one change
        want = {"10.50.0.1": "10.50.0.2", "10.50.0.2": "10.50.0.1"}[now]
        api.ask("PUT", SLICES + "/probe-1", slice_of("probe", [want], "UDP"))
        began = time.monotonic()
        while who(address) != want:
            if time.monotonic() - began > LIMIT:
                sys.exit("proxy.py: packets do not follow")
        took.append((time.monotonic() - began) * 1000)
    print(f"{statistics.median(took):.1f}")


def listen():
    """Takes connections at the Service's endpoint, and all that comes by them."""
    listener = socket.create_server(("10.50.0.1", 8080), backlog=1000)

    def take(connection):
        buffer = bytearray(1 << 20)
        with connection:
            while connection.recv_into(buffer):
                pass

    def loop():
        while True:
            threading.Thread(target=take, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()


def stream(seconds):
    address = API().ask("GET", SERVICES + "/stream")["spec"]["clusterIP"]
    listen()
    piece, sent, began = bytes(1 << 20), 0, time.monotonic()
    with socket.create_connection((address, 80), timeout=10) as s:
        while time.monotonic() - began < seconds:
            s.sendall(piece)
            sent += 1
    print(f"{sent * 1.048576 / (time.monotonic() - began):.0f}")


def connect(seconds):
    address = API().ask("GET", SERVICES + "/stream")["spec"]["clusterIP"]
    listener = socket.create_server(("10.50.0.1", 8080), backlog=1000)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        with socket.create_connection((address, 80), timeout=10) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # no port waits for packets that come late
            listener.accept()[0].close()
        count += 1
    print(f"{count / seconds:.0f}")


if verb == "fill":
    fill(int(rest[0]), int(rest[1]))
elif verb == "await":
    wait(float(rest[0]), int(rest[1]))
elif verb == "stream":
    stream(float(rest[0]))
elif verb == "connect":
    connect(float(rest[0]))
else:
    change(int(rest[0]))

"""Creates a Deployment of nginx and prints how many seconds it took until all its pods were Ready, or deletes it and waits until its pods are gone.

    deploy.py KUBECTL KUBECONFIG create|delete NAME REPLICAS
"""
import base64
import http.client
import json
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

LIMIT = 180  # seconds that anything may take
kubectl, kubeconfig, verb, name, replicas = *sys.argv[1:5], int(sys.argv[5])
config = json.loads(subprocess.check_output([kubectl, "--kubeconfig", kubeconfig, "config", "view", "--raw", "--minify", "-o", "json"]))
server, user = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]
context = ssl._create_unverified_context()  # it is on this machine, and who it is does not matter here
if "client-certificate-data" in user:
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        pem.flush()
        context.load_cert_chain(pem.name)
headers = {"Content-Type": "application/json", "Accept": "application/json"}
if "token" in user:
    headers["Authorization"] = "Bearer " + user["token"]


def connect():
    return http.client.HTTPSConnection(urllib.parse.urlparse(server).netloc, context=context, timeout=LIMIT)


def ask(connection, method, path, body=None):
    connection.request(method, path, body and json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read()
    if response.status not in (200, 201, 202):
        raise RuntimeError(f"{method} {path}: {response.status} {text.decode()}")
    return json.loads(text)


def until(what, true):
    deadline = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"deploy.py: waited {LIMIT} s for {what}")
        time.sleep(0.1)


def there(path):
    try:
        return ask(api, "GET", path)
    except RuntimeError:
        return None


api = connect()
space = "/api/v1/namespaces/default"
pods = space + "/pods?labelSelector=app%3D" + name
if verb == "delete":
    ask(api, "DELETE", "/apis/apps/v1/namespaces/default/deployments/" + name, {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
    until("pods to go", lambda: not ask(api, "GET", pods)["items"])
    sys.exit()

for needed in ("/serviceaccounts/default", "/configmaps/kube-root-ca.crt"):
    until(needed, lambda: there(space + needed))
version = ask(api, "GET", pods)["metadata"]["resourceVersion"]
watch = connect()
watch.request("GET", pods + "&watch=true&resourceVersion=" + version, headers=headers)
events = watch.getresponse()
container = {"name": "nginx", "image": "nginx", "imagePullPolicy": "IfNotPresent"}
deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
              "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}}}
began, ready = time.monotonic(), set()
ask(api, "POST", "/apis/apps/v1/namespaces/default/deployments", deployment)
while len(ready) < replicas:
    line = events.readline()
    if not line or time.monotonic() > began + LIMIT:
        sys.exit(f"deploy.py: {len(ready)} of {replicas} pods are Ready after {time.monotonic() - began:.0f} s")
    pod = json.loads(line)["object"]
    if any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", [])):
        ready.add(pod["metadata"]["uid"])
print(f"{time.monotonic() - began:.3f}")

#!/usr/bin/env python3
"""Runs kbench and adds, for each of its measurements, what the driver and the server used of the processors.

    stages.py KBENCH KUBECONFIG MEASUREMENTS OBJECTS PID...

Prints kbench's own lines (name, value, unit), and NAME-server-cpu and NAME-driver-cpu in microseconds per operation. The machine's other
work moves rates; it moves these far less."""
import os
import subprocess
import sys

kbench, kubeconfig, measurements, objects, pids = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:]
operations = {"create-configmap": objects, "create-pod": objects, "get-pod": 2 * objects, "watch-events": 500 * 200, "schedule": 3000, "deploy": 3000}
operations.update({name: 16 for name in ("list-protobuf", "list-protobuf-gzip", "list-json", "list-table")})
tick = os.sysconf("SC_CLK_TCK")


def used(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / tick


driver = subprocess.Popen([kbench, "--kubeconfig", kubeconfig, "--only", measurements, "--objects", str(objects)], stdout=subprocess.PIPE, text=True)
before = used(driver.pid), sum(map(used, pids))
for line in driver.stdout:
    name, value, unit = line.split()
    print(name, value, unit, flush=True)
    now = used(driver.pid), sum(map(used, pids))
    if name in operations:
        for who, a, b in (("driver", before[0], now[0]), ("server", before[1], now[1])):
            print(f"{name}-{who}-cpu {(b - a) / operations[name] * 1e6:.1f} us/op", flush=True)
    before = now
sys.exit(driver.wait())

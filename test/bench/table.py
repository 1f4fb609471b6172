"""Prints the median of each measurement of upstream and skiff, and their ratio, as a table."""
import statistics
import sys

work, rounds = sys.argv[1], int(sys.argv[2])


def read(system):
    values, better = {}, {}
    for n in range(1, rounds + 1):
        for line in open(f"{work}/{system}.{n}"):
            name, value, direction = line.rstrip("\n").split("\t")
            values.setdefault(name, []).append(float(value))
            better[name] = direction
    return {k: statistics.median(v) for k, v in values.items()}, better


upstream, better = read("upstream")
skiff, _ = read("skiff")
print("| what | upstream | skiff | skiff is |")
print("|---|---|---|---|")
for name, u in upstream.items():
    s = skiff[name]
    ratio = (u / s if better[name] == "less" else s / u) if s and u else 0
    print(f"| {name} | {u:g} | {s:g} | {ratio:.1f} times better |" if ratio else f"| {name} | {u:g} | {s:g} | |")

"""Prints the median of each measurement of upstream and skiff, and their ratio, as a table, with the least and the greatest ratio of a round."""
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
    return values, better


upstream, better = read("upstream")
skiff, _ = read("skiff")


def ratio(name, u, s):
    return (u / s if better[name] == "less" else s / u) if s and u else 0


print("| what | upstream | skiff | skiff is | in single rounds |")
print("|---|---|---|---|---|")
for name in upstream:
    u, s = statistics.median(upstream[name]), statistics.median(skiff[name])
    each = [ratio(name, *round) for round in zip(upstream[name], skiff[name])]
    words = f"{ratio(name, u, s):.1f} times better | {min(each):.1f} to {max(each):.1f}" if ratio(name, u, s) else "|"
    print(f"| {name} | {u:g} | {s:g} | {words} |")

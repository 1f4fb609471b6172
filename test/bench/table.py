"""Prints the median of each measurement of upstream and of what is beside it, and their ratio, as a table, with the least and the greatest ratio of a round.

    table.py DIRECTORY ROUNDS [SYSTEM...]
"""
import statistics
import sys

work, rounds, systems = sys.argv[1], int(sys.argv[2]), sys.argv[3:] or ["skiff"]


def read(system):
    values, better = {}, {}
    for n in range(1, rounds + 1):
        for line in open(f"{work}/{system}.{n}"):
            name, value, direction = line.rstrip("\n").split("\t")
            values.setdefault(name, []).append(float(value))
            better[name] = direction
    return values, better


upstream, better = read("upstream")
others = {system: read(system)[0] for system in systems}


def ratio(name, u, s):
    return (u / s if better[name] == "less" else s / u) if s and u else 0


print("| what | upstream |" + "".join(f" {system} | {system} is | in single rounds |" for system in systems))
print("|---|---|" + "---|---|---|" * len(systems))
for name in upstream:
    u = statistics.median(upstream[name])
    line = f"| {name} | {u:g} |"
    for system in systems:
        s = statistics.median(others[system][name])
        each = [ratio(name, *round) for round in zip(upstream[name], others[system][name])]
        words = f"{ratio(name, u, s):.1f} times better | {min(each):.1f} to {max(each):.1f}" if ratio(name, u, s) else "|"
        line += f" {s:g} | {words} |"
    print(line)

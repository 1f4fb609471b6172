"""Prints the median of each measurement of a baseline (upstream, or skiff before a change) and of what is beside it, and their ratio, as a table, with the least and the greatest ratio of a round.

    table.py DIRECTORY ROUNDS BASELINE SYSTEM...
"""
import statistics
import sys

work, rounds, baseline, systems = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
digits = 1 if baseline == "upstream" else 2


def read(system):
    values, better = {}, {}
    for n in range(1, rounds + 1):
        for line in open(f"{work}/{system}.{n}"):
            name, value, direction = line.rstrip("\n").split("\t")
            values.setdefault(name, []).append(float(value))
            better[name] = direction
    return values, better


base, better = read(baseline)
others = {system: read(system)[0] for system in systems}


def ratio(name, u, s):
    return (u / s if better[name] == "less" else s / u) if s and u else 0


print(f"| what | {baseline} |" + "".join(f" {system} | {system} is | in single rounds |" for system in systems))
print("|---|---|" + "---|---|---|" * len(systems))
for name in base:
    u = statistics.median(base[name])
    line = f"| {name} | {u:g} |"
    for system in systems:
        s = statistics.median(others[system][name])
        each = [ratio(name, *round) for round in zip(base[name], others[system][name])]
        words = f"{ratio(name, u, s):.{digits}f} times better | {min(each):.{digits}f} to {max(each):.{digits}f}" if ratio(name, u, s) else "|"
        line += f" {s:g} | {words} |"
    print(line)

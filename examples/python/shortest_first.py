"""A policy in Python: the job with the least time left runs first, on the GPUs that it asks for. It is `srtf` of
`rubato policies`, and makes the same schedule.

    python3 shortest_first.py TRACE CLUSTER     compares the two, for example with jobs.csv and 64x8
"""

import sys

import numpy

import rubato


class ShortestFirst(rubato.Policy):
    one_type = work_conserving = True

    def decide(self, now, jobs, cluster, state):
        # Jobs with the same time left keep the order of the last decision. New jobs come after them.
        last = state.get("order", jobs.id[:0])
        last = last[numpy.isin(last, jobs.id, assume_unique=True)]
        order = numpy.searchsorted(jobs.id, last)
        new = numpy.ones(len(jobs), bool)
        new[order] = False
        order = numpy.concatenate([order, numpy.flatnonzero(new)])
        order = order[numpy.argsort(jobs.remaining[order], kind="stable")]
        state["order"] = jobs.id[order]
        gpus = numpy.zeros(len(jobs), int)
        gpus[order] = rubato.fit(jobs.requested[order], cluster.usable[0])
        return rubato.Decision(gpus, order=order)


def main():
    trace, cluster = sys.argv[1:]
    result = rubato.simulate(trace, cluster=cluster, policy=["srtf", ShortestFirst()])
    for run in result:
        print(f"{run.policy}: average completion time {run.summary['avg_jct_s']:.3f} s, {run.summary['decisions']} "
              f"decisions, {run.summary['wall_s']:.1f} s of simulation")
    same = numpy.array_equal(result[0].jobs["end_s"], result[1].jobs["end_s"], equal_nan=True)
    print("the schedules are", "the same" if same else "different")
    for sentence in rubato.check(ShortestFirst()):
        print(sentence)


if __name__ == "__main__":
    main()

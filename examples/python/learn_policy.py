"""Learns a policy in the environment, by the simplest of methods: it tries weights at random and keeps the best.

    python3 learn_policy.py [EPISODES]

A job's rank is a weighted sum of what is known about it, and jobs run in order of rank.
"""

import sys
import tempfile

import numpy

import rubato


def features(now, jobs):
    return numpy.stack([numpy.log1p(jobs.remaining), numpy.log1p(now - jobs.submitted), numpy.log(jobs.requested)])


def act(question, weights):
    jobs = question.jobs
    order = numpy.argsort(weights @ features(question.now, jobs), kind="stable")
    gpus = numpy.zeros(len(jobs), int)
    gpus[order] = rubato.fit(jobs.requested[order], question.cluster.usable[0])
    return gpus


def episode(env, seed, weights):
    """Returns the sum of the rewards, and the summary of the simulation."""
    question, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        question, reward, done, _truncated, info = env.step(act(question, weights))
        total += reward
    return total, info["summary"]


def main():
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    random = numpy.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        def trace(seed):
            return rubato.Trace.generate(f"{folder}/{seed}.csv", jobs=60, cluster="2x4", load=1.2, seed=seed)
        with rubato.Environment(trace, cluster="2x4") as env:
            best, best_reward = numpy.zeros(3), episode(env, 1, numpy.zeros(3))[0]
            for _ in range(episodes):
                weights = best + random.normal(size=3)
                reward = episode(env, 1, weights)[0]
                if reward > best_reward:
                    best, best_reward = weights, reward
            for name, weights in (("in order of submission", numpy.zeros(3)), ("learned", best)):
                summary = episode(env, 2, weights)[1]  # jobs on which it was not trained
                print(f"{name}: average completion time {summary['avg_jct_s']:.0f} s")


if __name__ == "__main__":
    main()

// What a master, its workers and its shares say to each other in a job that spans hosts
// (docs/many-hosts.md). A share starts and watches the workers of one host for the master.
//
// Every message names its round and its epoch. The epoch counts the masters of the job: whoever has
// heard a later master refuses an earlier one, and a master that hears of a later one ends. The
// round counts the starts of all workers from the checkpoint: a worker belongs to one round.
//
// Plain values; how they become bytes is not decided here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rubato/wire/launch.h"

namespace rubato::wire {

using ShareName = std::string;

// From the master to a worker, as the answer to its hello and whenever something in it changes. It
// is always whole, so the newest one is all that a worker needs.
struct RosterWord {
  std::int64_t round = 0;
  std::int64_t epoch = 0;
  MembershipPlan plan;
  // All workers of this round that are gone, in the order in which they went: vouched deaths and
  // exclusions. The list only grows, so of two lists one is the beginning of the other.
  std::vector<Uid> gone;
  Uid founder = 0;  // 0: none yet
};

// From a worker to its master, at each connection and whenever something in it changes.
//
// The worker counts its connections. What it said on an earlier one may be read after what it says
// on a later one, and then counts no more.
struct WorkerHello {
  std::int64_t connection = 0;
  std::int64_t round = 0;
  Uid uid = 0;
  std::int64_t epoch = 0;           // the highest that it has heard
  std::int64_t gone = 0;            // length of the list that it has heard
  bool works = false;               // it is a working member of its own record, with state
  MembershipGeneration generation;  // of that record
  std::int64_t applied = -1;        // the last step that it has applied; -1: it has no state
  friend bool operator==(const WorkerHello&, const WorkerHello&) = default;
};

// From the master to a share.
struct StartOrder {
  std::int64_t round = 0;
  std::int64_t epoch = 0;
  Uid uid = 0;
};
struct KillOrder {
  std::int64_t round = 0;
  std::int64_t epoch = 0;
  Uid uid = 0;
};
// The ends of these workers are durable: the share need not say them again.
struct EndsKept {
  std::int64_t epoch = 0;
  std::vector<Uid> uids;
};

// From a share to its master, at each connection and whenever a worker has ended.
struct ShareHello {
  std::int64_t connection = 0;  // counted, as in WorkerHello
  ShareName share;
  std::int64_t epoch = 0;
  std::vector<Uid> running;
  std::vector<Uid> ended;  // until the master has said that they are kept
};

}  // namespace rubato::wire

// What a master and its shares say to each other in a job that spans hosts (docs/many-hosts.md). A
// share starts and watches the workers of one host for the master. launch.h has what a master and
// its workers say to each other.
//
// Every message names its round and its epoch. The epoch counts the masters of the job: whoever has
// heard a later master refuses an earlier one, and a master that hears of a later one ends. The
// round counts the starts of all workers from the checkpoint: a worker belongs to one round.
//
// Plain values; launch/share_messages.h makes bytes of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rubato/wire/launch.h"

namespace rubato::wire {

using ShareName = std::string;

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
  std::int64_t connection = 0;  // counted, as in WorkerHello (launch.h)
  ShareName share;
  std::int64_t epoch = 0;
  std::vector<Uid> running;
  std::vector<Uid> ended;  // until the master has said that they are kept
  // Which process has the name: the manager's own id of it (empty: not known), and a random word.
  std::string native{};
  std::string instance{};
};

}  // namespace rubato::wire

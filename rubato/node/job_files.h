// The directory of one job, which its master, its agent and people read (docs/live.md).
//
//   launch.json   JobLaunch: what to run; by the agent, before the master starts
//   master.json   ProcessName of the master, once it listens on m.sock
//   workers.json  WorkerRecords: the processes it has started and not collected
//   exit.json     JobExit of the last master that came to its end
//   fence.json    starts up to this generation must not begin any more; by the daemon
//   forgotten.json  the start whose end the daemon has stored; by the agent
//   m.sock        where the master listens
//   log           what the workers print        events.jsonl   what happened, one JSON a line
//   checkpoint/   RUBATO_CHECKPOINT             secrets/       only where there is no tmpfs
//
// A file is whole or not there: it is written beside its place and renamed. All are for their owner
// alone (0600), and none is reached through a symbolic link at its own name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rubato/launch/master_messages.h"
#include "rubato/wire/socket.h"

namespace rubato::node {

struct JobFiles {
  std::string directory;

  [[nodiscard]] std::string launch() const { return directory + "/launch.json"; }
  [[nodiscard]] std::string master() const { return directory + "/master.json"; }
  [[nodiscard]] std::string workers() const { return directory + "/workers.json"; }
  [[nodiscard]] std::string exit() const { return directory + "/exit.json"; }
  [[nodiscard]] std::string fence() const { return directory + "/fence.json"; }
  [[nodiscard]] std::string forgotten() const { return directory + "/forgotten.json"; }
  [[nodiscard]] std::string socket() const { return directory + "/m.sock"; }
  [[nodiscard]] std::string log() const { return directory + "/log"; }
  [[nodiscard]] std::string events() const { return directory + "/events.jsonl"; }
  [[nodiscard]] std::string checkpoint() const { return directory + "/checkpoint"; }
  [[nodiscard]] std::string secrets() const { return directory + "/secrets"; }
};

// A directory that stays the same one when it is moved while we use it.
class HeldDirectory {
 public:
  [[nodiscard]] static Result<HeldDirectory> open(const std::string& path);

  // By which this process reaches it, wherever it is.
  [[nodiscard]] std::string own_path() const;
  // Where it is now, for others.
  [[nodiscard]] std::string path() const;
  // The same error with the path that others know.
  [[nodiscard]] Error shown(Error error) const;

 private:
  HeldDirectory(wire::Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  wire::Fd fd_;
  std::string path_;  // where it was
};

// 0600; what was there before stays if it fails. What need not outlive the machine, because it
// speaks of its processes, is not waited for.
enum class Durable : bool { no, yes };
[[nodiscard]] Result<void> write_json_file(const std::string& path, const Json& content,
                                           Durable durable = Durable::yes);
// nullopt if there is none; an error if it cannot be read, is too large or no JSON.
[[nodiscard]] Result<std::optional<Json>> read_json_file(const std::string& path);

// nullopt if there is no such file.
[[nodiscard]] Result<std::optional<JobLaunch>> read_launch(const JobFiles& files);
[[nodiscard]] Result<std::optional<ProcessName>> read_master(const JobFiles& files);
[[nodiscard]] Result<std::vector<WorkerRecord>> read_workers(const JobFiles& files);  // or none
[[nodiscard]] Result<std::optional<JobExit>> read_exit(const JobFiles& files);
// Of fence.json or forgotten.json; 0, which no start has, if it is not there or not to be read.
[[nodiscard]] Generation read_generation(const std::string& path);
[[nodiscard]] Json generation_file(Generation generation);

}  // namespace rubato::node

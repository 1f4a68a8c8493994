// The directory of one job, which its master, its agent and people read (docs/internals.md, "Files
// of a job").
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
//   roster/       of a job in shares: what the next master must know (launch/roster_files.h)
//
// A JSON file is complete or missing: it is written to a temporary file and renamed. Only the owner
// can access the files (0600). None of them is opened if it is a symbolic link.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rubato/launch/json_file.h"
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
  [[nodiscard]] std::string roster() const { return directory + "/roster"; }
  [[nodiscard]] std::string secrets() const { return directory + "/secrets"; }
};

// A directory that we keep using if it is moved.
class HeldDirectory {
 public:
  [[nodiscard]] static Result<HeldDirectory> open(const std::string& path);

  // The path by which this process reaches it, even if it was moved.
  [[nodiscard]] std::string own_path() const;
  // Its present path, for others.
  [[nodiscard]] std::string path() const;
  // The same error with the path that others know.
  [[nodiscard]] Error shown(Error error) const;

 private:
  HeldDirectory(wire::Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  wire::Fd fd_;
  std::string path_;  // where it was
};

// nullopt if there is no such file.
[[nodiscard]] Result<std::optional<JobLaunch>> read_launch(const JobFiles& files);
[[nodiscard]] Result<std::optional<ProcessName>> read_master(const JobFiles& files);
[[nodiscard]] Result<std::vector<WorkerRecord>> read_workers(const JobFiles& files);  // or none
[[nodiscard]] Result<std::optional<JobExit>> read_exit(const JobFiles& files);
// The generation in fence.json or forgotten.json. If the file is missing or cannot be read: 0,
// which no start has.
[[nodiscard]] Generation read_generation(const std::string& path);
[[nodiscard]] Json generation_file(Generation generation);

}  // namespace rubato::node

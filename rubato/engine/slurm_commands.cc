#include "rubato/engine/slurm_commands.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "rubato/wire/random_hex.h"

namespace rubato::engine {
namespace {

using CommandClock = std::chrono::steady_clock;

constexpr int kPipeSize = 1 << 20;

// False if the output is too long.
bool drain(const wire::Fd& pipe, std::string& into) {
  std::array<char, 64 << 10> bytes;
  for (;;) {
    const ssize_t size = ::read(pipe.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    into.append(bytes.data(), static_cast<std::size_t>(size));
    if (into.size() > kMostSlurmAnswer) return false;
  }
}

// A command that runs. It is not waited for: a submission that was sent is found by the next
// listing.
class CommandCall final : public SlurmCall {
 public:
  CommandCall(launch::Process process, std::chrono::milliseconds patience)
      : process_(std::move(process)),
        patience_(patience),
        deadline_(CommandClock::now() + patience) {
    ::fcntl(process_.out.get(), F_SETPIPE_SZ, kPipeSize);
  }
  ~CommandCall() override {
    if (!ended_) end();
  }

  std::optional<SlurmReply> look() override {
    // First the end, so that all of its output is read after it.
    const auto how = launch::reap(process_);
    const bool fits = drain(process_.out, out_) && drain(process_.err, err_);
    if (how) {
      ended_ = true;
      if (!how->killed && how->code == 0) return SlurmReply{true, std::move(out_), {}, false};
      std::string why = slurm_complaint(err_);
      if (why.empty()) why = fmt::format("its command {}", to_text(*how));
      return SlurmReply{false, {}, why, how->killed || slurm_answer_lost(why)};
    }
    if (fits && CommandClock::now() < deadline_) return std::nullopt;
    end();
    return SlurmReply{false,
                      {},
                      fits ? fmt::format("Slurm has not answered for {} s",
                                         std::chrono::duration<double>(patience_).count())
                           : std::string("the answer of Slurm is too long"),
                      true};
  }

 private:
  void end() {
    ended_ = true;
    launch::send_signal(process_, SIGKILL);
    launch::end_child(process_.pid);
  }

  launch::Process process_;
  std::chrono::milliseconds patience_;
  CommandClock::time_point deadline_;
  bool ended_ = false;
  std::string out_, err_;
};

}  // namespace

SlurmWay::Begun SlurmCommands::start(const std::vector<std::string>& command,
                                     const launch::SpawnOptions& options) const {
  auto process =
      launch::spawn(command, slurm_environment(options.user, options_.configuration), options);
  if (!process) return process.error();
  return std::unique_ptr<SlurmCall>(
      std::make_unique<CommandCall>(std::move(*process), options_.patience));
}

Result<void> SlurmCommands::can_submit(const ShareSpec& share) const {
  const auto user = launch::run_as(share.user);
  return user ? Result<void>() : user.error();
}

SlurmWay::Begun SlurmCommands::submit(const SlurmRequest& request) {
  const ShareSpec& share = request.share;
  std::vector<std::string> command{
      "sbatch", "--parsable", "--job-name=" + share.name,
      "--comment=" + slurm_comment(share.comment), "--nodelist=" + request.host, "--nodes=1",
      "--ntasks=1",
      request.type.empty() ? fmt::format("--gres=gpu:{}", share.gpus)
                           : fmt::format("--gres=gpu:{}:{}", request.type, share.gpus),
      "--no-requeue", "--chdir=/", "--input=/dev/null", "--output=/dev/null",
      fmt::format("--cpus-per-gpu={}", request.cpus_per_gpu),
      // Otherwise the first share may take all memory of the node.
      fmt::format("--mem-per-gpu={}M", request.memory_per_gpu)};
  if (!request.partition.empty()) command.push_back("--partition=" + request.partition);
  if (!options_.account.empty()) command.push_back("--account=" + options_.account);
  if (options_.minutes > 0) command.push_back(fmt::format("--time={}", options_.minutes));
  command.insert(command.end(), {"/dev/stdin", share.directory, share.log});
  command.insert(command.end(), share.command.begin(), share.command.end());

  auto user = launch::run_as(share.user);
  if (!user) return user.error();
  launch::SpawnOptions options;
  options.directory = "/";
  options.close_others = true;
  options.input = fmt::format("#!/bin/sh\n{}", kSlurmScript);
  options.user = std::move(*user);
  return start(command, options);
}

std::string SlurmCommands::submitted(const std::string& text) const {
  return submitted_slurm_job(text);
}

SlurmWay::Begun SlurmCommands::cancel(const std::vector<std::string>& numbers) {
  std::vector<std::string> command{"scancel", "--quiet"};
  command.insert(command.end(), numbers.begin(), numbers.end());
  return start(command);
}

SlurmWay::Begun SlurmCommands::ask_partitions() {
  return start({"scontrol", "--oneliner", "show", "partition"});
}

SlurmWay::Begun SlurmCommands::ask_nodes() {
  return start({"scontrol", "--oneliner", "--details", "show", "node"});
}

SlurmWay::Begun SlurmCommands::ask_jobs() {
  mark_ = wire::random_hex(16);
  std::vector<std::string> command{"squeue", "--noheader", "--states=all",
                                   "--format=" + slurm_job_format(mark_)};
  // A daemon of an ordinary user has only jobs of this user.
  if (::geteuid() != 0) command.push_back("--user=" + own_slurm_user());
  return start(command);
}

Result<std::vector<SlurmPartition>> SlurmCommands::partitions(const std::string& text) {
  return parse_slurm_partitions(text);
}

Result<std::vector<SlurmNode>> SlurmCommands::nodes(const std::string& text) {
  return parse_slurm_nodes(text);
}

Result<std::vector<SlurmJob>> SlurmCommands::jobs(const std::string& text) {
  return parse_slurm_jobs(text, mark_, options_.prefix);
}

}  // namespace rubato::engine

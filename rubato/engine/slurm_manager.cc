#include "rubato/engine/slurm_manager.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/wire/random_hex.h"

namespace rubato::engine {
namespace {

// Its arguments: the directory, the log, the command. The directory of the log may still be on its
// way: the job's master makes it, and network file systems show it later.
constexpr const char* kScript =
    "#!/bin/sh\n"
    "i=0\n"
    "until test -d \"${2%/*}\" || test $i -ge 60; do sleep 1; i=$((i+1)); done\n"
    "cd -- \"$1\" && exec >>\"$2\" 2>&1 || exit 1\n"
    "shift 2\n"
    "exec \"$@\"\n";

constexpr int kPipeSize = 1 << 20;
constexpr std::size_t kMostOutput = std::size_t{256} << 20U;
constexpr std::size_t kMostCancels = 100;  // in one command

// False if the output is too long.
bool drain(const wire::Fd& pipe, std::string& into) {
  std::array<char, 64 << 10> bytes;
  for (;;) {
    const ssize_t size = ::read(pipe.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    into.append(bytes.data(), static_cast<std::size_t>(size));
    if (into.size() > kMostOutput) return false;
  }
}

std::string own_name() {
  const passwd* user = ::getpwuid(::geteuid());
  return user == nullptr ? std::to_string(::geteuid()) : user->pw_name;
}

// What Slurm's commands need, and nothing else: Slurm gives its batch jobs this environment.
launch::Environment environment_of(const std::optional<launch::RunAs>& user,
                                   const std::string& configuration) {
  const auto itself = user ? Result<launch::RunAs>(*user) : launch::look_up_user(own_name());
  launch::Environment environment =
      itself ? launch::clean_environment(*itself)
             : launch::Environment{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"};
  environment.emplace_back("LC_ALL=C.UTF-8");
  if (!configuration.empty()) environment.push_back("SLURM_CONF=" + configuration);
  return environment;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

Result<void> check(const SlurmOptions& options) {
  if (!plain_slurm_name(options.prefix)) return Error{"the names of shares need a prefix"};
  for (const auto& [what, name] :
       {std::pair("partition", options.partition), std::pair("account", options.account)}) {
    if (!name.empty() && !plain_slurm_name(name)) {
      return Error{fmt::format("--{} {}: write the name of one {} of Slurm", what,
                               base::quoted(name), what)};
    }
  }
  return {};
}

SlurmManager::SlurmManager(SlurmOptions options)
    : options_(std::move(options)), partition_(options_.partition) {}

// Commands that run are not waited for. A submission that was sent is found by the next listing.
SlurmManager::~SlurmManager() {
  const auto end = [](Call& call) {
    launch::send_signal(call.process, SIGKILL);
    launch::end_child(call.process.pid);
  };
  for (auto& submission : submissions_) end(submission.call);
  if (cancelling_) end(*cancelling_);
  if (listing_) end(*listing_);
}

// --- running commands ----------------------------------------------------------------------------

Result<SlurmManager::Call> SlurmManager::start(const std::vector<std::string>& command,
                                               const launch::SpawnOptions& options) const {
  auto process =
      launch::spawn(command, environment_of(options.user, options_.configuration), options);
  if (!process) return process.error();
  ::fcntl(process->out.get(), F_SETPIPE_SZ, kPipeSize);
  return Call{std::move(*process), Clock::now() + options_.patience, {}, {}};
}

std::optional<SlurmManager::CallEnd> SlurmManager::look_at(Call& call) const {
  // First the end, so that all of its output is read after it.
  const auto end = launch::reap(call.process);
  const bool fits = drain(call.process.out, call.out) && drain(call.process.err, call.err);
  if (end) {
    if (!end->killed && end->code == 0) return CallEnd{true, std::move(call.out), {}, false};
    std::string why = slurm_complaint(call.err);
    if (why.empty()) why = fmt::format("its command {}", to_text(*end));
    return CallEnd{false, {}, why, end->killed || slurm_answer_lost(why)};
  }
  if (fits && Clock::now() < call.deadline) return std::nullopt;
  launch::send_signal(call.process, SIGKILL);
  launch::end_child(call.process.pid);
  return CallEnd{false,
                 {},
                 fits ? fmt::format("Slurm has not answered for {} s",
                                    std::chrono::duration<double>(options_.patience).count())
                      : std::string("the answer of Slurm is too long"),
                 true};
}

void SlurmManager::turn() {
  turn_submissions();
  turn_cancels();
  turn_list();
}

std::vector<ManagerAnswer> SlurmManager::take_answers() { return std::exchange(answers_, {}); }

// --- submissions ---------------------------------------------------------------------------------

bool SlurmManager::under_way(const ShareName& share) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const ShareSpec& one) { return one.name == share; }) ||
         std::any_of(submissions_.begin(), submissions_.end(),
                     [&](const Submission& one) { return one.share.name == share; });
}

void SlurmManager::submit(const ShareSpec& share) {
  if (under_way(share.name)) return;
  const auto asked = asked_.find(share.name);
  if (const auto native = view_.native(share.name)) {
    answers_.emplace_back(ShareTaken{share.name, std::to_string(*native)});
  } else if (asked != asked_.end() && !asked->second.native.empty()) {
    answers_.emplace_back(ShareTaken{share.name, asked->second.native});
  } else {
    asked_[share.name] = {share.user.empty() ? own_name() : share.user, "", number_};
    waiting_.push_back(share);
    turn_submissions();
  }
}

Result<std::vector<std::string>> SlurmManager::submission_command(const ShareSpec& share) const {
  const SlurmNode* const node = view_.node(share.node);
  if (node == nullptr) return Error{fmt::format("Slurm has no node {}", base::quoted(share.node))};
  if (!plain_slurm_name(share.name) || !plain_slurm_name(share.node) || share.gpus < 1 ||
      share.gpus > std::max(node->gpus, 0)) {
    return Error{fmt::format("a share {} with {} on {} cannot be asked for",
                             base::quoted(share.name), base::plural(share.gpus, "GPU"),
                             base::quoted(share.node))};
  }
  const bool typed = plain_slurm_name(node->type);
  const int cpus = options_.cpus_per_gpu > 0 ? options_.cpus_per_gpu : node->cpus / node->gpus;
  const std::int64_t memory =
      options_.memory_per_gpu > 0 ? options_.memory_per_gpu : node->memory / node->gpus;
  std::string comment = share.comment;
  std::replace_if(comment.begin(), comment.end(), is_control, ' ');
  std::vector<std::string> command{
      "sbatch", "--parsable", "--job-name=" + share.name, "--comment=" + comment,
      "--nodelist=" + share.node, "--nodes=1", "--ntasks=1",
      typed ? fmt::format("--gres=gpu:{}:{}", node->type, share.gpus)
            : fmt::format("--gres=gpu:{}", share.gpus),
      "--no-requeue", "--chdir=/", "--input=/dev/null", "--output=/dev/null",
      fmt::format("--cpus-per-gpu={}", std::max(cpus, 1)),
      // Otherwise the first share may take all memory of the node.
      fmt::format("--mem-per-gpu={}M", std::max<std::int64_t>(memory, 1))};
  if (!partition_.empty()) command.push_back("--partition=" + partition_);
  if (!options_.account.empty()) command.push_back("--account=" + options_.account);
  if (options_.minutes > 0) command.push_back(fmt::format("--time={}", options_.minutes));
  command.insert(command.end(), {"/dev/stdin", share.directory, share.log});
  command.insert(command.end(), share.command.begin(), share.command.end());
  return command;
}

void SlurmManager::start_submission(const ShareSpec& share) {
  const auto refuse = [&](const std::string& why) {
    answers_.emplace_back(ShareRefused{share.name, why});
  };
  const auto command = submission_command(share);
  if (!command) return refuse(command.error().message);
  auto user = launch::run_as(share.user);
  if (!user) return refuse(user.error().message);
  launch::SpawnOptions options;
  options.directory = "/";
  options.close_others = true;
  options.input = kScript;
  options.user = std::move(*user);
  auto call = start(*command, options);
  // Nothing was sent, and it may succeed later.
  if (!call) {
    answers_.emplace_back(ShareUnknown{share.name, call.error().message});
    return;
  }
  submissions_.push_back({share, std::move(*call)});
}

void SlurmManager::submission_ended(const ShareSpec& share, const CallEnd& end) {
  const std::string native = end.good ? submitted_slurm_job(end.out) : "";
  Asked& asked = asked_[share.name];
  asked.native = native;
  asked.number = number_;
  if (!native.empty()) {
    answers_.emplace_back(ShareTaken{share.name, native});
  } else if (end.good) {
    answers_.emplace_back(ShareUnknown{share.name, "sbatch did not say the number of the job"});
  } else if (end.lost) {
    answers_.emplace_back(ShareUnknown{share.name, end.why});
  } else {
    answers_.emplace_back(ShareRefused{share.name, end.why});
  }
}

void SlurmManager::turn_submissions() {
  for (auto one = submissions_.begin(); one != submissions_.end();) {
    const auto end = look_at(one->call);
    if (end) submission_ended(one->share, *end);
    one = end ? submissions_.erase(one) : std::next(one);
  }
  while (!waiting_.empty() && submissions_.size() < options_.submissions_at_once) {
    start_submission(waiting_.front());
    waiting_.pop_front();
  }
}

// --- cancelling ----------------------------------------------------------------------------------

// A submission that is under way cannot be cancelled yet: whoever cancels asks again.
void SlurmManager::cancel(const ShareName& share) {
  std::erase_if(waiting_, [&](const ShareSpec& other) { return other.name == share; });
  for (const std::int64_t id : view_.living(share)) to_cancel_.insert(std::to_string(id));
  const auto asked = asked_.find(share);
  if (asked != asked_.end() && !asked->second.native.empty() && !view_.native(share))
    to_cancel_.insert(asked->second.native);
}

// What it says does not matter: whoever cancels looks at the listings.
void SlurmManager::turn_cancels() {
  if (cancelling_ && look_at(*cancelling_)) cancelling_.reset();
  if (cancelling_ || to_cancel_.empty()) return;
  std::vector<std::string> command{"scancel", "--quiet"};
  while (!to_cancel_.empty() && command.size() < kMostCancels)
    command.push_back(std::move(to_cancel_.extract(to_cancel_.begin()).value()));
  if (auto call = start(command)) cancelling_ = std::move(*call);
}

// --- listing -------------------------------------------------------------------------------------

std::int64_t SlurmManager::list() {
  if (step_ == Step::idle) {
    ++number_;
    step_ = Step::due;
    turn_list();
  }
  return number_;
}

void SlurmManager::turn_list() {
  if (step_ == Step::idle) return;
  if (step_ == Step::due) {
    if (Clock::now() < last_list_ + options_.between_lists) return;
    return begin_list();
  }
  auto end = look_at(*listing_);
  if (!end) return;
  listing_.reset();
  if (!end->good) return list_failed(end->why);
  if (step_ == Step::partition) {
    partition_ = default_slurm_partition(end->out);
    if (partition_.empty()) return list_failed("Slurm has no default partition; give --partition");
    step_ = Step::nodes;
    return next_of_list();
  }
  if (step_ == Step::jobs) return finish_list(end->out);
  auto nodes = parse_slurm_nodes(end->out);
  if (!nodes) return list_failed(nodes.error().message);
  nodes_ = std::move(*nodes);
  // Only what can be asked for.
  std::erase_if(nodes_, [&](const SlurmNode& node) {
    return node.gpus == 0 || !plain_slurm_name(node.name) ||
           std::find(node.partitions.begin(), node.partitions.end(), partition_) ==
               node.partitions.end();
  });
  step_ = Step::jobs;
  next_of_list();
}

void SlurmManager::begin_list() {
  last_list_ = Clock::now();
  step_ = partition_.empty() ? Step::partition : Step::nodes;
  next_of_list();
}

// First the nodes, then the jobs (slurm_view.h).
void SlurmManager::next_of_list() {
  std::vector<std::string> command;
  if (step_ == Step::partition) {
    command = {"sinfo", "--noheader", "--format=%P"};
  } else if (step_ == Step::nodes) {
    command = {"scontrol", "--oneliner", "--details", "show", "node"};
  } else {
    mark_ = wire::random_hex(16);
    command = {"squeue", "--noheader", "--states=all", "--format=" + slurm_job_format(mark_)};
    // A daemon of an ordinary user has only jobs of this user.
    if (::geteuid() != 0) command.push_back("--user=" + own_name());
  }
  auto call = start(command);
  if (!call) return list_failed(call.error().message);
  listing_ = std::move(*call);
}

void SlurmManager::list_failed(const std::string& why) {
  step_ = Step::idle;
  if (!std::exchange(in_trouble_, true)) answers_.emplace_back(ManagerTrouble{why});
}

void SlurmManager::finish_list(const std::string& text) {
  const auto jobs = parse_slurm_jobs(text, mark_, options_.prefix);
  if (!jobs) return list_failed(jobs.error().message);
  step_ = Step::idle;
  const auto now = std::chrono::floor<Duration>(Clock::now().time_since_epoch());
  std::map<ShareName, std::string> owners;
  for (const auto& [name, asked] : asked_) owners[name] = asked.user;
  answers_.emplace_back(view_.update(number_, nodes_, *jobs, owners, Time(now)));
  for (const std::int64_t id : view_.doubles()) to_cancel_.insert(std::to_string(id));
  forget_unlisted();
  if (std::exchange(in_trouble_, false)) answers_.emplace_back(ManagerTrouble{});
}

void SlurmManager::forget_unlisted() {
  std::erase_if(asked_, [&](const auto& one) {
    return one.second.number < number_ && !view_.native(one.first) && !under_way(one.first);
  });
}

}  // namespace rubato::engine

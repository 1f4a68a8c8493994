#include "rubato/engine/slurm_manager.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/text.h"

namespace rubato::engine {
namespace {

// Partitions change seldom.
constexpr std::chrono::seconds kPartitionsEvery{5};
constexpr std::size_t kMostCancelsAtOnce = 8;

}  // namespace

SlurmManager::SlurmManager(SlurmOptions options)
    : options_(std::move(options)), way_(way_to_slurm(options_)) {}

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
    asked_[share.name] = {share.user.empty() ? own_slurm_user() : share.user, "", number_};
    waiting_.push_back(share);
    turn_submissions();
  }
}

Result<SlurmRequest> SlurmManager::request_for(const ShareSpec& share) const {
  const SlurmNode* const node = view_.node(share.node);
  if (node == nullptr) return Error{fmt::format("Slurm has no node {}", base::quoted(share.node))};
  if (!plain_slurm_name(share.name) || share.gpus < 1 || share.gpus > std::max(node->gpus, 0)) {
    return Error{fmt::format("a share {} with {} on {} cannot be asked for",
                             base::quoted(share.name), base::plural(share.gpus, "GPU"),
                             base::quoted(share.node))};
  }
  if (auto can = way_->can_submit(share); !can) return can.error();
  SlurmRequest request;
  request.share = share;
  request.host = node->host;
  if (plain_slurm_name(node->type)) request.type = node->type;
  request.cpus_per_gpu =
      std::max(1, options_.cpus_per_gpu > 0 ? options_.cpus_per_gpu : node->cpus / node->gpus);
  request.memory_per_gpu = std::max<std::int64_t>(
      1, options_.memory_per_gpu > 0 ? options_.memory_per_gpu : node->memory / node->gpus);
  request.partition = partition_.name;
  return request;
}

void SlurmManager::refuse(const ShareName& share, const std::string& why) {
  answers_.emplace_back(ShareRefused{share, why, slurm_limit_of_user(why)});
}

void SlurmManager::start_submission(const ShareSpec& share) {
  const auto request = request_for(share);
  if (!request) return refuse(share.name, request.error().message);
  auto call = way_->submit(*request);
  // Nothing was sent, and it may succeed later.
  if (!call) {
    answers_.emplace_back(ShareUnknown{share.name, call.error().message});
    return;
  }
  submissions_.push_back({share, std::move(*call)});
}

void SlurmManager::submission_ended(const ShareSpec& share, const SlurmReply& reply) {
  const std::string native = reply.good ? way_->submitted(reply.text) : "";
  Asked& asked = asked_[share.name];
  asked.native = native;
  asked.number = number_;
  if (!native.empty()) {
    answers_.emplace_back(ShareTaken{share.name, native});
  } else if (reply.good) {
    answers_.emplace_back(ShareUnknown{share.name, "Slurm did not say the number of the job"});
  } else if (reply.lost) {
    answers_.emplace_back(ShareUnknown{share.name, reply.why});
  } else {
    refuse(share.name, reply.why);
  }
}

void SlurmManager::turn_submissions() {
  for (auto one = submissions_.begin(); one != submissions_.end();) {
    const auto reply = one->call->look();
    if (reply) submission_ended(one->share, *reply);
    one = reply ? submissions_.erase(one) : std::next(one);
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
  std::erase_if(cancelling_, [](const auto& call) { return call->look().has_value(); });
  while (!to_cancel_.empty() && cancelling_.size() < kMostCancelsAtOnce) {
    std::vector<std::string> numbers;
    while (!to_cancel_.empty() && numbers.size() < way_->most_cancels())
      numbers.push_back(std::move(to_cancel_.extract(to_cancel_.begin()).value()));
    auto call = way_->cancel(numbers);
    if (!call) return;
    cancelling_.push_back(std::move(*call));
  }
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
  const auto reply = listing_->look();
  if (!reply) return;
  listing_.reset();
  if (!reply->good) return list_failed(reply->why);
  if (step_ == Step::jobs) return finish_list(reply->text);
  const bool partitions = step_ == Step::partitions;
  auto taken = partitions ? take_partitions(reply->text) : take_nodes(reply->text);
  if (!taken) return list_failed(taken.error().message);
  step_ = partitions ? Step::nodes : Step::jobs;
  next_of_list();
}

void SlurmManager::begin_list() {
  last_list_ = Clock::now();
  step_ = last_list_ >= partitions_due_ ? Step::partitions : Step::nodes;
  next_of_list();
}

// First the nodes, then the jobs (slurm_view.h).
void SlurmManager::next_of_list() {
  auto call = step_ == Step::partitions ? way_->ask_partitions()
              : step_ == Step::nodes    ? way_->ask_nodes()
                                        : way_->ask_jobs();
  if (!call) return list_failed(call.error().message);
  listing_ = std::move(*call);
}

Result<void> SlurmManager::take_partitions(const std::string& text) {
  const auto partitions = way_->partitions(text);
  if (!partitions) return partitions.error();
  auto ours = std::find_if(partitions->begin(), partitions->end(), [&](const auto& one) {
    return options_.partition.empty() ? one.is_default : one.name == options_.partition;
  });
  // Newer versions of slurmrestd do not say which one is the default.
  if (options_.partition.empty() && partitions->size() == 1) ours = partitions->begin();
  if (ours == partitions->end()) {
    return options_.partition.empty()
               ? Error{"Slurm has no default partition; give --partition"}
               : Error{fmt::format("Slurm has no partition {}", base::quoted(options_.partition))};
  }
  const auto limit = options_.minutes > 0
                         ? std::optional<Duration>(std::chrono::minutes(options_.minutes))
                         : ours->limit;
  if (limit && *limit < kLeastSlurmLimit) {
    return Error{fmt::format(
        "shares in the partition {} would have a time limit of {} s, and their workers would move "
        "all the time; raise its DefaultTime, or give --time-limit, to at least {} minutes",
        base::quoted(ours->name), std::chrono::floor<std::chrono::seconds>(*limit).count(),
        std::chrono::floor<std::chrono::minutes>(kLeastSlurmLimit).count())};
  }
  partition_ = *ours;
  partitions_due_ = Clock::now() + kPartitionsEvery;
  return {};
}

Result<void> SlurmManager::take_nodes(const std::string& text) {
  auto nodes = way_->nodes(text);
  if (!nodes) return nodes.error();
  nodes_ = std::move(*nodes);
  // Only what can be asked for.
  std::erase_if(nodes_, [&](const SlurmNode& node) {
    return node.gpus == 0 || !plain_slurm_name(node.host) ||
           std::find(node.partitions.begin(), node.partitions.end(), partition_.name) ==
               node.partitions.end();
  });
  return {};
}

void SlurmManager::list_failed(const std::string& why) {
  step_ = Step::idle;
  if (!std::exchange(in_trouble_, true)) answers_.emplace_back(ManagerTrouble{why});
}

void SlurmManager::finish_list(const std::string& text) {
  const auto jobs = way_->jobs(text);
  if (!jobs) return list_failed(jobs.error().message);
  step_ = Step::idle;
  const auto now = std::chrono::floor<Duration>(Clock::now().time_since_epoch());
  std::map<ShareName, std::string> owners;
  for (const auto& [name, asked] : asked_) owners[name] = asked.user;
  Listing listing = view_.update(number_, nodes_, *jobs, owners, Time(now));
  listing.settings = partition_.settings;
  answers_.emplace_back(std::move(listing));
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

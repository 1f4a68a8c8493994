#include "rubato/engine/slurm_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "rubato/base/text.h"

namespace rubato::engine {
namespace {

using State = ManagedShare::State;

constexpr long long kMostGpus = 1 << 20;
constexpr std::int64_t kMostMemory = std::int64_t{1} << 40U;

// The value of " Key=" in a line, up to the next space. Slurm prints Reason last, and only it (and
// the name of the system) contains spaces.
std::optional<std::string_view> field(std::string_view line, std::string_view key) {
  const std::string wanted = fmt::format(" {}=", key);
  const auto at = line.find(wanted);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + wanted.size());
  return line.substr(0, line.find(' '));
}

std::vector<std::string> words_of(std::optional<std::string_view> list) {
  std::vector<std::string> words;
  if (!list || *list == "(null)") return words;
  for (const auto word : split(*list, ',')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

// "gpu:a100:2(IDX:0,3)" -> "gpu:a100:2"
std::string without_parentheses(std::string_view text) {
  std::string result;
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (depth == 0) result += c;
    if (c == ')' && depth > 0) --depth;
  }
  return result;
}

// By type; "" for those without one. Of a list such as "gpu:a100:2(S:0),gpu:v100:1,nic:2". Slurm
// writes gres:gpu or gres/gpu in jobs.
std::map<std::string, int> gpus_of(std::string_view list) {
  std::map<std::string, int> gpus;
  long long all = 0;
  const std::string plain = without_parentheses(list);
  for (std::string_view one : split(plain, ',')) {
    for (const std::string_view prefix : {"gres:", "gres/"}) {
      if (one.starts_with(prefix)) one.remove_prefix(prefix.size());
    }
    const auto parts = split(one, ':');
    if (parts.front() != "gpu" || parts.size() > 3) continue;
    const auto number = parse_integer(parts.size() == 1 ? "1" : parts.back());
    if (!number || *number < 1 || *number > kMostGpus - all) continue;
    all += *number;
    gpus[parts.size() == 3 ? std::string(parts[1]) : ""] += static_cast<int>(*number);
  }
  return gpus;
}

int sum(const std::map<std::string, int>& gpus) {
  return std::accumulate(gpus.begin(), gpus.end(), 0,
                         [](int total, const auto& one) { return total + one.second; });
}

std::int64_t number_of(std::optional<std::string_view> text) {
  const auto number = text ? parse_integer(*text) : std::nullopt;
  return number && *number > 0 ? *number : 0;
}

// "MIXED+DRAIN", or with marks of older versions: "IDLE*+DRAIN".
std::set<std::string> flags_of(std::string_view state) {
  std::set<std::string> flags;
  for (std::string_view flag : split(state, '+')) {
    const auto end = flag.find_last_not_of("*~#!%$@^-");
    if (flag.find('*') != std::string_view::npos) flags.insert("NOT_RESPONDING");
    flag = flag.substr(0, end == std::string_view::npos ? 0 : end + 1);
    if (!flag.empty()) flags.emplace(flag);
  }
  return flags;
}

struct StateWords {
  const char* flag;
  NodeState state;
  const char* words;
};
// The first that holds.
constexpr std::array<StateWords, 17> kNodeWords{{
    {"DOWN", NodeState::down, "down"},
    {"ERROR", NodeState::down, "in error"},
    {"FUTURE", NodeState::down, "not there yet"},
    {"POWERED_DOWN", NodeState::down, "powered down"},
    {"POWERING_DOWN", NodeState::down, "powering down"},
    {"NOT_RESPONDING", NodeState::unknown, "not responding"},
    {"NO_RESPOND", NodeState::unknown, "not responding"},
    {"UNKNOWN", NodeState::unknown, "not heard of yet"},
    {"POWERING_UP", NodeState::unknown, "powering up"},
    {"REBOOT_ISSUED", NodeState::unknown, "rebooting"},
    {"DRAIN", NodeState::draining, "drained"},
    {"DRAINED", NodeState::draining, "drained"},
    {"DRAINING", NodeState::draining, "drained"},
    {"FAIL", NodeState::draining, "failing"},
    {"MAINT", NodeState::draining, "in maintenance"},
    {"REBOOT_REQUESTED", NodeState::draining, "about to reboot"},
    {"RESERVED", NodeState::draining, "reserved"},
}};

void set_state(SlurmNode& node, std::string_view state, std::string_view reason) {
  const auto flags = flags_of(state);
  const auto* const found = std::find_if(kNodeWords.begin(), kNodeWords.end(),
                                         [&](const auto& one) { return flags.contains(one.flag); });
  node.answering = true;
  for (const auto& one : kNodeWords) {
    const bool silent = one.state == NodeState::down || one.state == NodeState::unknown;
    if (silent && flags.contains(one.flag)) node.answering = false;
  }
  if (found == kNodeWords.end()) return;
  node.state = found->state;
  node.why = reason.empty() ? fmt::format("Slurm says that it is {}", found->words)
                            : fmt::format("Slurm says that it is {}: {}", found->words, reason);
}

Result<void> parse_node(std::string_view line, std::vector<SlurmNode>& nodes) {
  constexpr std::string_view kName = "NodeName=";
  SlurmNodeWords words;
  words.name = line.substr(kName.size(), line.find(' ') - kName.size());
  const auto state = field(line, "State");
  if (words.name.empty() || !state) {
    return Error{fmt::format("Slurm describes a node without {}: {}",
                             words.name.empty() ? "a name" : "a state", base::quoted(line))};
  }
  words.state = *state;
  const auto at = line.find(" Reason=");
  if (at != std::string_view::npos)
    words.reason = trim(line.substr(at + std::string_view(" Reason=").size()));
  words.gres = field(line, "Gres").value_or("");
  words.gres_used = field(line, "GresUsed").value_or("");
  words.cpus = number_of(field(line, "CPUEfctv").has_value() ? field(line, "CPUEfctv")
                                                             : field(line, "CPUTot"));
  words.memory = number_of(field(line, "RealMemory"));
  words.partitions = words_of(field(line, "Partitions"));
  words.features = words_of(field(line, "ActiveFeatures"));
  add_slurm_nodes(words, nodes);
  return {};
}

// "1-00:00:00", "UNLIMITED", "NONE"; minutes and seconds as `squeue` writes them.
std::optional<Duration> limit_of(std::optional<std::string_view> text) {
  return text ? parse_slurm_time_left(*text) : std::nullopt;
}

struct ReasonWords {
  const char* reason;
  const char* words;
};
// Slurm's reasons have about 200 names. These are the ones that a share can meet and whose name
// does not explain itself.
constexpr std::array<ReasonWords, 14> kWaiting{{
    {"Resources", "its node has no room for it now"},
    {"Priority", "jobs of a higher priority are before it"},
    {"Dependency", "it depends on another job"},
    {"PartitionDown", "its partition is down"},
    {"PartitionInactive", "its partition is inactive"},
    {"PartitionNodeLimit", "its partition does not allow so many nodes"},
    {"PartitionTimeLimit", "its partition does not allow so long a time limit"},
    {"ReqNodeNotAvail", "its node is not available"},
    {"Reservation", "its reservation has not begun"},
    {"JobHeldUser", "somebody holds it"},
    {"JobHeldAdmin", "an administrator holds it"},
    {"BeginTime", "it may not begin yet"},
    {"Licenses", "it waits for a licence"},
    {"NodeDown", "its node is down"},
}};

std::string waiting_words(std::string_view reason) {
  if (reason.empty() || reason == "None") return "Slurm has not looked at it yet";
  // "ReqNodeNotAvail, UnavailableNodes:n1"
  const std::string_view first = reason.substr(0, reason.find(','));
  for (const auto& one : kWaiting) {
    if (first == one.reason) return fmt::format("{} (Slurm: {})", one.words, reason);
  }
  if (first.starts_with("Assoc"))
    return fmt::format("a limit of its account is reached (Slurm: {})", reason);
  if (first.starts_with("QOS"))
    return fmt::format("a limit of its quality of service is reached (Slurm: {})", reason);
  return fmt::format("Slurm says {}", reason);
}

constexpr std::array<ReasonWords, 10> kEnds{{
    {"COMPLETED", "it has ended"},
    {"CANCELLED", "it was cancelled"},
    {"TIMEOUT", "it reached its time limit"},
    {"DEADLINE", "it reached its time limit"},
    {"PREEMPTED", "it was preempted by a job of a higher priority"},
    {"OUT_OF_MEMORY", "it used more memory than it had asked for"},
    {"NODE_FAIL", "its node failed"},
    {"BOOT_FAIL", "its node did not boot"},
    {"FAILED", "it failed"},
    {"REVOKED", "it was revoked"},
}};

}  // namespace

Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text) {
  std::vector<SlurmNode> nodes;
  for (const auto line : split(text, '\n')) {
    if (!line.starts_with("NodeName=")) continue;  // a reason with a line break goes on here
    if (auto read = parse_node(line, nodes); !read) return read.error();
  }
  return nodes;
}

void add_slurm_nodes(const SlurmNodeWords& words, std::vector<SlurmNode>& nodes) {
  const auto gpus = gpus_of(words.gres);
  const auto used = gpus_of(words.gres_used);
  const int all = sum(gpus);
  SlurmNode node;
  node.name = node.host = words.name;
  set_state(node, words.state, words.reason);
  node.partitions = words.partitions;
  node.features = words.features;
  const auto add = [&](const std::string& type, int number, int of_these) {
    node.type = type;
    node.gpus = number;
    node.gpus_used = of_these;
    const std::int64_t part = std::max(all, 1);
    const std::int64_t mine = std::max(number, 1);
    node.cpus = static_cast<int>(std::min<std::int64_t>(words.cpus, kMostGpus) * mine / part);
    node.memory = std::min(words.memory, kMostMemory) / part * mine;
    nodes.push_back(node);
  };
  // Those without a type cannot be asked for apart from the others.
  if (gpus.size() < 2 || gpus.contains(""))
    return add(gpus.size() == 1 ? gpus.begin()->first : "", all, sum(used));
  for (const auto& [type, number] : gpus) {
    const auto taken = used.find(type);
    node.name = fmt::format("{}/{}", node.host, type);
    add(type, number, taken == used.end() ? 0 : taken->second);
  }
}

std::vector<SlurmPartition> parse_slurm_partitions(std::string_view text) {
  constexpr std::string_view kName = "PartitionName=";
  std::vector<SlurmPartition> partitions;
  for (const auto line : split(text, '\n')) {
    if (!line.starts_with(kName)) continue;
    SlurmPartition partition;
    partition.name = line.substr(kName.size(), line.find(' ') - kName.size());
    partition.is_default = field(line, "Default") == "YES";
    const auto usual = limit_of(field(line, "DefaultTime"));
    partition.limit = usual ? usual : limit_of(field(line, "MaxTime"));
    partition.settings = line;
    if (!partition.name.empty()) partitions.push_back(std::move(partition));
  }
  return partitions;
}

SlurmGpus parse_slurm_gpus(std::string_view list) {
  const auto gpus = gpus_of(list);
  return {sum(gpus), gpus.size() == 1 ? gpus.begin()->first : ""};
}

std::string slurm_job_format(std::string_view mark) {
  return fmt::format("{}|%i|%T|%u|%N|%n|%b|%r|%L|%j", mark);
}

Result<std::vector<SlurmJob>> parse_slurm_jobs(std::string_view text, std::string_view mark,
                                               std::string_view prefix) {
  constexpr std::size_t kFields = 10;
  std::vector<SlurmJob> jobs;
  for (const auto line : split(text, '\n')) {
    if (!line.starts_with(mark)) continue;  // a name with a line break goes on here
    auto fields = split(line, '|');
    if (fields.size() < kFields)
      return Error{fmt::format("squeue lists a job in a strange way: {}", base::quoted(line))};
    // The name is the last field, because it may contain the separator. Then it is not ours.
    if (fields.size() > kFields || !fields[9].starts_with(prefix)) continue;
    const auto id = parse_integer(fields[1]);
    if (!id || *id <= 0) continue;  // an array of jobs; ours are none
    SlurmJob job;
    job.id = *id;
    job.state = fields[2];
    job.user = fields[3];
    job.placed = !fields[4].empty() && fields[4] != "(null)";
    job.node = job.placed ? fields[4] : fields[5];
    if (job.node == "(null)") job.node.clear();
    const SlurmGpus gpus = parse_slurm_gpus(fields[6]);
    job.gpus = gpus.number;
    job.type = gpus.type;
    job.reason = fields[7];
    if (slurm_share_state(job.state) == State::running) job.left = parse_slurm_time_left(fields[8]);
    job.name = fields[9];
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::optional<Duration> parse_slurm_time_left(std::string_view text) {
  constexpr std::int64_t kMostDays = 100'000;
  if (text == "INVALID") return Duration(0);
  const auto dash = text.find('-');
  const bool has_days = dash != std::string_view::npos;
  const auto days = parse_integer(has_days ? text.substr(0, dash) : "0");
  const auto parts = split(has_days ? text.substr(dash + 1) : text, ':');
  if (!days || *days < 0 || *days > kMostDays || parts.size() > 3) return std::nullopt;
  std::int64_t seconds = 0;
  for (const auto part : parts) {
    const auto number = parse_integer(part);
    if (!number || *number < 0 || *number >= 60) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return std::chrono::seconds(*days * 86'400 + seconds);
}

std::string submitted_slurm_job(std::string_view text) {
  // "17" or "17;cluster", after what a plugin may have printed.
  for (const auto line : split(text, '\n')) {
    const auto number = trim(line.substr(0, line.find(';')));
    const auto id = parse_integer(number);
    if (id && *id > 0 && std::isdigit(static_cast<unsigned char>(number.front())) != 0)
      return std::to_string(*id);
  }
  return "";
}

std::string slurm_complaint(std::string_view text) {
  std::string result;
  for (std::string_view line : split(text, '\n')) {
    // "sbatch: error: Batch job submission failed: Invalid account"
    for (const std::string_view prefix :
         {"sbatch: ", "squeue: ", "scontrol: ", "scancel: ", "sinfo: ", "error: ", "fatal: ",
          "Batch job submission failed: ", "slurm_load_jobs error: ", "slurm_load_node error: "}) {
      if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
    }
    line = trim(line);
    if (line.empty()) continue;
    if (!result.empty()) result += "; ";
    result += base::quoted(line, 200);
    if (result.size() > 400) break;
  }
  std::erase(result, '"');
  return result;
}

bool slurm_answer_lost(std::string_view complaint) {
  for (const std::string_view words : {"Unable to contact",
                                       "timed out",
                                       "Zero Bytes were transmitted",
                                       "standby",
                                       "Connection refused",
                                       "Connection reset",
                                       "Broken pipe",
                                       "temporarily unable",
                                       "Resource temporarily unavailable",
                                       "authentication",
                                       "Munge",
                                       "munge",
                                       "Unexpected message",
                                       "communication",
                                       "Communication",
                                       "Unable to resolve",
                                       "Could not establish a configuration",
                                       "No route to host",
                                       "Network is unreachable",
                                       "Unspecified error"}) {
    if (complaint.find(words) != std::string_view::npos) return true;
  }
  return false;
}

bool slurm_limit_of_user(std::string_view why) {
  for (const std::string_view words :
       {"Assoc", "QOS", "Invalid account", "Invalid qos", "accounting/QOS policy", "MaxSubmit",
        "InvalidAccount", "InvalidQOS", "QosNotAllowed", "AccountNotAllowed",
        "User's group not permitted", "Job credential revoked"}) {
    if (why.find(words) != std::string_view::npos) return true;
  }
  return false;
}

ManagedShare::State slurm_share_state(std::string_view state) {
  if (state == "PENDING" || state == "REQUEUED" || state == "REQUEUE_HOLD" ||
      state == "SPECIAL_EXIT" || state == "RESV_DEL_HOLD" || state == "REQUEUE_FED") {
    return State::waiting;
  }
  if (state == "CONFIGURING") return State::waiting;  // its node boots or is prepared
  if (state == "RUNNING" || state == "SUSPENDED" || state == "RESIZING" || state == "SIGNALING" ||
      state == "STOPPED") {
    return State::running;
  }
  const bool ended =
      std::any_of(kEnds.begin(), kEnds.end(), [&](const auto& one) { return state == one.reason; });
  return ended ? State::gone : State::ending;
}

std::string slurm_words(const SlurmJob& job) {
  switch (slurm_share_state(job.state)) {
    case State::waiting:
      if (job.state == "CONFIGURING") return "Slurm prepares its node";
      return waiting_words(job.reason);
    case State::running:
      return job.state == "RUNNING" ? "" : fmt::format("Slurm says {}", job.state);
    case State::ending:
      return fmt::format("Slurm says {}", job.state);
    case State::gone:
    case State::lost:
      break;
  }
  const auto* const end = std::find_if(kEnds.begin(), kEnds.end(),
                                       [&](const auto& one) { return job.state == one.reason; });
  const bool more = !job.reason.empty() && job.reason != "None" && job.reason != "TimeLimit" &&
                    job.reason != "Priority" && job.reason != "Resources";
  return more ? fmt::format("{} (Slurm: {})", end->words, job.reason) : end->words;
}

bool plain_slurm_name(std::string_view name) {
  return !name.empty() && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '+';
         });
}

}  // namespace rubato::engine

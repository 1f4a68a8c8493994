#include "rubato/client/render.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"

namespace rubato::client::render {
namespace {

// --- fields of an answer -------------------------------------------------------------------------

const Json& field(const Json& json, const char* name) {
  static const Json nothing;
  if (!json.is_object()) return nothing;
  const auto found = json.find(name);
  return found == json.end() ? nothing : *found;
}

}  // namespace

std::string text(const Json& json, const char* name) {
  const Json& value = field(json, name);
  return value.is_string() ? for_terminal(value.get_ref<const std::string&>()) : "";
}

std::string count(const Json& json, const char* name) {
  const Json& value = field(json, name);
  return value.is_number_integer() ? value.dump() : "";
}

namespace {

std::optional<double> number(const Json& json, const char* name) {
  const Json& value = field(json, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<WallTime> time(const Json& json, const char* name) {
  const Json& value = field(json, name);
  if (!value.is_string()) return std::nullopt;
  return parse_wall_time(value.get_ref<const std::string&>());
}

const Json& list(const Json& json, const char* name) {
  static const Json empty = Json::array();
  const Json& value = field(json, name);
  return value.is_array() ? value : empty;
}

double seconds_between(WallTime from, WallTime to) { return seconds(Duration{to - from}); }

// --- words ---------------------------------------------------------------------------------------

enum class Colour : std::uint8_t { none, red, green, yellow, blue, magenta, cyan, grey, bold };

std::string paint(const std::string& word, Colour colour, const Look& look) {
  constexpr std::array<const char*, 9> kCodes = {"", "31", "32", "33", "34", "35", "36", "90", "1"};
  if (!look.colour || colour == Colour::none || word.empty()) return word;
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes.at(static_cast<std::size_t>(colour)), word);
}

Colour colour_of_state(std::string_view state) {
  if (state == "RUNNING" || state == "COMPLETED" || state == "up") return Colour::green;
  if (state == "FAILED" || state == "REFUSED" || state == "down") return Colour::red;
  if (state == "RESIZING" || state == "STOPPING") return Colour::cyan;
  if (state == "CANCELLED") return Colour::grey;
  return Colour::yellow;
}

// Neighbouring jobs have different colours.
Colour colour_of_job(long long id) {
  constexpr std::array<Colour, 6> kColours = {Colour::green,   Colour::cyan, Colour::yellow,
                                              Colour::magenta, Colour::blue, Colour::red};
  return kColours.at(static_cast<std::size_t>(static_cast<unsigned long long>(id) % 6));
}

// In the reader's time zone. With the date only if it is not today.
std::string clock(WallTime when, const Look& look) {
  const std::string iso = to_text(std::chrono::floor<std::chrono::seconds>(when + look.offset));
  const std::string today = to_text(WallTime{look.now + look.offset});
  const std::string hours = iso.substr(11, 8);
  return iso.substr(0, 10) == today.substr(0, 10) ? hours : iso.substr(0, 10) + " " + hours;
}

std::string clock(const Json& json, const char* name, const Look& look) {
  const auto when = time(json, name);
  return when ? clock(*when, look) : "";
}

std::string slack_text(double slack) { return (slack < 0 ? "-" : "+") + rough(std::abs(slack)); }

Colour colour_of_slack(double slack) { return slack < 0 ? Colour::red : Colour::none; }

std::string done_text(const Json& job) {
  const auto done = number(field(job, "progress"), "done");
  return done ? fmt::format("{:.0f}%", 100 * std::clamp(*done, 0.0, 1.0)) : "";
}

std::string limits_text(const Json& limits) {
  std::string allowed;
  for (const Json& one : list(limits, "allowed")) {
    if (one.is_number_integer()) allowed += (allowed.empty() ? "" : ",") + one.dump();
  }
  if (!allowed.empty()) return allowed;
  const std::string min = count(limits, "min");
  const std::string max = count(limits, "max");
  return max.empty() || max == "0" ? min + "+" : min == max ? min : min + "-" + max;
}

std::string time_used(const Json& job, const Look& look) {
  const auto started = time(job, "started");
  if (!started) return "0:00";
  return elapsed(seconds_between(*started, time(job, "ended").value_or(look.now)));
}

std::string where_or_why(const Json& job) {
  std::string where = node_list(field(job, "slots"));
  const std::string why = text(job, "reason");
  if (why.empty()) return where;
  return fmt::format("{}{}({})", where, where.empty() ? "" : " ", why);
}

// As a user would type it. It is for people; no shell reads it.
std::string command_text(const Json& command) {
  std::string line;
  for (const Json& word : command) {
    if (!word.is_string()) continue;
    const std::string safe = for_terminal(word.get_ref<const std::string&>());
    const bool plain =
        !safe.empty() && safe.find_first_of(" '\"\\$`;&|<>()*?#~") == std::string::npos;
    line += (line.empty() ? "" : " ") + (plain ? safe : "'" + safe + "'");
  }
  return line;
}

// --- tables --------------------------------------------------------------------------------------

struct Cell {
  std::string text{};  // safe to print
  Colour colour = Colour::none;
};

// Each column is as wide as its widest cell. The last one takes the rest of the line.
class Table {
 public:
  // If a title begins with '>', its column is right-aligned, for numbers.
  explicit Table(std::vector<std::string> titles) : titles_(std::move(titles)) {}

  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // Limits the width of a column.
  void limit(std::size_t column, int columns) { limits_[column] = columns; }

  [[nodiscard]] std::string text(const Look& look) const {
    std::vector<Cell> head;
    head.reserve(titles_.size());
    for (const std::string& title : titles_) {
      head.push_back({title.starts_with('>') ? title.substr(1) : title, Colour::bold});
    }
    const std::vector<int> widths = measured(head);
    std::string out = line(head, widths, look);
    for (const auto& row : rows_) out += line(row, widths, look);
    return out;
  }

 private:
  [[nodiscard]] std::vector<int> measured(const std::vector<Cell>& head) const {
    std::vector<int> widths(titles_.size());
    for (std::size_t i = 0; i < titles_.size(); ++i) {
      widths[i] = text_columns(head[i].text);
      for (const auto& row : rows_) widths[i] = std::max(widths[i], text_columns(row[i].text));
      const auto most = limits_.find(i);
      if (most != limits_.end()) widths[i] = std::min(widths[i], most->second);
    }
    return widths;
  }

  [[nodiscard]] std::string line(const std::vector<Cell>& row, const std::vector<int>& widths,
                                 const Look& look) const {
    std::string out;
    int used = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      int width = last ? text_columns(row[i].text) : widths[i];
      if (look.columns > 0) width = std::min(width, look.columns - used);
      if (width <= 0) break;
      const int spare = width - text_columns(row[i].text);
      std::string word = fitted(row[i].text, width);
      if (titles_[i].starts_with('>') && spare > 0) {
        const auto blanks = static_cast<std::size_t>(spare);
        word = std::string(blanks, ' ') + word.substr(0, word.size() - blanks);
      }
      out += paint(word, row[i].colour, look);
      used += width + 2;
      if (!last) out += "  ";
    }
    while (out.ends_with(' ')) out.pop_back();
    return out + "\n";
  }

  std::vector<std::string> titles_;
  std::vector<std::vector<Cell>> rows_;
  std::map<std::size_t, int> limits_;
};

// On a narrow terminal names are shortened, so that deadlines are still visible.
constexpr int kNarrow = 110;
int widest_name(const Look& look) { return look.columns > 0 && look.columns < kNarrow ? 14 : 24; }
int widest_user(const Look& look) { return look.columns > 0 && look.columns < kNarrow ? 8 : 12; }
constexpr int kWidestLimits = 12;
constexpr int kBar = 12;

Cell state_cell(const std::string& state) { return {short_state(state), colour_of_state(state)}; }

Cell slack_cell(const Json& job) {
  const auto slack = number(job, "slack_seconds");
  if (!slack) return {};
  return {slack_text(*slack), colour_of_slack(*slack)};
}

}  // namespace

// --- small texts ---------------------------------------------------------------------------------

std::string short_state(std::string_view state) {
  if (const auto known = parse_job_state(state)) return std::string(short_text(*known));
  return fitted(state, std::min(text_columns(for_terminal(state)), 2));
}

bool has_ended(std::string_view state) {
  return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED" || state == "REFUSED";
}

std::string elapsed(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, kLongestSeconds));
  const auto days = whole / 86400;
  const auto hours = whole / 3600 % 24;
  const auto minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}-{:02}:{:02}:{:02}", days, hours, minutes, whole % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string rough(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, kLongestSeconds));
  const auto two = [](long long large, char unit, long long small, char rest) {
    return small == 0 ? fmt::format("{}{}", large, unit)
                      : fmt::format("{}{}{}{}", large, unit, small, rest);
  };
  if (whole >= 86400) return two(whole / 86400, 'd', whole / 3600 % 24, 'h');
  if (whole >= 3600) return two(whole / 3600, 'h', whole / 60 % 60, 'm');
  if (whole >= 60) return two(whole / 60, 'm', whole % 60, 's');
  return fmt::format("{}s", whole);
}

std::string bar(double share, int columns) {
  if (!(share > 0)) share = 0;
  const int full = static_cast<int>(std::floor(std::min(share, 1.0) * columns));
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(full), '#'),
                     std::string(static_cast<std::size_t>(columns - full), '-'));
}

std::string node_list(const Json& slots) {
  if (!slots.is_array()) return "";
  std::map<long long, std::vector<long long>> gpus;
  for (const Json& slot : slots) {
    if (!slot.is_string()) continue;
    const auto parts = split(slot.get_ref<const std::string&>(), '.');
    const auto node = parse_integer(parts.front());
    const auto gpu = parse_integer(parts.back());
    if (parts.size() == 2 && node && gpu) gpus[*node].push_back(*gpu);
  }
  std::string out;
  for (auto& [node, of_node] : gpus) {
    std::sort(of_node.begin(), of_node.end());
    out += fmt::format("{}{}[", out.empty() ? "" : ",", node);
    for (std::size_t i = 0; i < of_node.size();) {
      std::size_t end = i;
      while (end + 1 < of_node.size() && of_node[end + 1] == of_node[end] + 1) ++end;
      out += i == 0 ? "" : ",";
      out +=
          i == end ? fmt::format("{}", of_node[i]) : fmt::format("{}-{}", of_node[i], of_node[end]);
      i = end + 1;
    }
    out += ']';
  }
  return out;
}

// --- tables of answers ---------------------------------------------------------------------------

std::string jobs(const Json& answer, const Look& look) {
  Table table({">JOBID", "NAME", "USER", "ST", ">TIME", ">GPUS", "LIMITS", ">DONE", ">ETA",
               ">SLACK", "NODELIST(REASON)"});
  table.limit(1, widest_name(look));
  table.limit(2, widest_user(look));
  table.limit(6, kWidestLimits);
  for (const Json& job : list(answer, "jobs")) {
    const std::string state = text(job, "state");
    const auto eta = time(job, "eta");
    table.add({{count(job, "id")},
               {text(job, "name")},
               {text(job, "user")},
               state_cell(state),
               {time_used(job, look)},
               {count(job, "gpus")},
               {limits_text(field(job, "limits"))},
               {done_text(job)},
               {eta && !has_ended(state) ? rough(seconds_between(look.now, *eta)) : ""},
               slack_cell(job),
               {where_or_why(job)}});
  }
  return table.text(look);
}

namespace {

// Why it cannot be used, and why others have GPUs of it.
std::string reason_of_node(const Json& node) {
  const std::string why = text(node, "reason");
  const std::string others = text(node, "others_reason");
  return why.empty() || others.empty() ? why + others : fmt::format("{}; {}", why, others);
}

}  // namespace

std::string nodes(const Json& answer, const Look& look) {
  const Json& all = list(answer, "nodes");
  const auto any = [&](const auto& has) { return std::any_of(all.begin(), all.end(), has); };
  const bool names = any([](const Json& node) {
    return !text(node, "name").empty() && text(node, "name") != "node" + count(node, "id");
  });
  const bool others = any([](const Json& node) { return !list(node, "others").empty(); });
  const bool reasons = any([](const Json& node) { return !reason_of_node(node).empty(); });
  std::vector<std::string> columns = {">NODE"};
  if (names) columns.emplace_back("NAME");
  for (const char* column : {"STATE", "TYPE", ">GPUS", ">USED"}) columns.emplace_back(column);
  if (others) columns.emplace_back(">OTHERS");
  for (const char* column : {"SINCE", "JOBS"}) columns.emplace_back(column);
  const bool tenants = any([](const Json& node) { return !list(node, "cells").empty(); });
  if (tenants) columns.emplace_back("CELLS");
  if (reasons) columns.emplace_back("REASON");
  Table table(columns);
  table.limit(names ? 3 : 2, widest_user(look));
  for (const Json& node : list(answer, "nodes")) {
    std::map<std::string, int> used;
    for (const Json& slot : list(node, "used")) {
      const std::string id = count(slot, "job");
      ++used[id.empty() ? "other" : id];
    }
    std::string who;
    for (const auto& [id, gpus] : used)
      who += fmt::format("{}{}x{}", who.empty() ? "" : " ", id, gpus);
    const std::string state = text(node, "state");
    std::vector<Cell> cells = {{count(node, "id")}};
    if (names) cells.push_back({text(node, "name")});
    cells.push_back({state, colour_of_state(state)});
    cells.push_back({text(node, "type")});
    cells.push_back({count(node, "gpus")});
    cells.push_back({std::to_string(list(node, "used").size())});
    if (others) cells.push_back({std::to_string(list(node, "others").size())});
    cells.push_back({clock(node, "since", look)});
    cells.push_back({who});
    std::string owners;
    for (const Json& one : list(node, "cells"))
      owners += fmt::format("{}{}x{}", owners.empty() ? "" : " ", text(one, "tenant"),
                            count(one, "gpus"));
    if (tenants) cells.push_back({owners});
    if (reasons) cells.push_back({reason_of_node(node)});
    table.add(std::move(cells));
  }
  return table.text(look);
}

std::string users(const Json& answer, const Look& look) {
  Table table({"USER", "ROLE", ">WEIGHT", ">GUARANTEED", "TOKENS", "PAGES"});
  for (const Json& user : list(answer, "users")) {
    std::string tokens;
    for (const Json& token : list(user, "tokens")) {
      if (!token.is_string()) continue;
      tokens += (tokens.empty() ? "" : " ") + for_terminal(token.get_ref<const std::string&>());
    }
    std::string pages;
    for (const Json& page : list(user, "pages")) {
      pages += fmt::format("{}{} until {}", pages.empty() ? "" : ", ", text(page, "token"),
                           clock(page, "until", look));
    }
    const auto weight = number(user, "most_weight");
    table.add({{text(user, "name")},
               {text(user, "role")},
               {weight ? shortest(*weight) : ""},
               {count(user, "guaranteed")},
               {tokens},
               {pages}});
  }
  return table.text(look);
}

std::string cells(const Json& answer, const Look& look) {
  Table table({"TENANT", "CELLS", ">GPUS", ">USED", ">LENT", ">BORROWED", "MEMBERS", "NODES"});
  for (const Json& tenant : list(answer, "tenants")) {
    std::string members;
    for (const Json& user : list(tenant, "members")) {
      if (!user.is_string()) continue;
      members += (members.empty() ? "" : " ") + for_terminal(user.get_ref<const std::string&>());
    }
    std::string nodes;
    for (const Json& place : list(tenant, "places")) {
      nodes += fmt::format("{}{}x{}", nodes.empty() ? "" : " ", text(place, "node"),
                           list(place, "gpus").size());
    }
    table.add({{text(tenant, "tenant")},
               {text(tenant, "cells")},
               {count(tenant, "gpus")},
               {count(tenant, "used")},
               {count(tenant, "lent")},
               {count(tenant, "borrowed")},
               {members.empty() ? text(tenant, "tenant") : members},
               {nodes}});
  }
  return table.text(look);
}

namespace {

std::string event_lines(const Json& events, const Look& look, bool with_job) {
  std::vector<std::string> titles = {"TIME", "EVENT", "WHAT"};
  if (with_job) titles = {">NUMBER", "TIME", ">JOB", "EVENT", "WHAT"};
  Table table(std::move(titles));
  for (const Json& event : events) {
    std::vector<Cell> row;
    row.reserve(5);
    if (with_job) row.push_back({count(event, "number")});
    row.push_back({clock(event, "at", look)});
    if (with_job) row.push_back({count(event, "job")});
    row.push_back({text(event, "type"), Colour::cyan});
    row.push_back({text(event, "text")});
    table.add(std::move(row));
  }
  return table.text(look);
}

}  // namespace

std::string history(const Json& answer, const Look& look) {
  return event_lines(list(answer, "events"), look, true);
}

std::string policy(const Json& answer, const Look& look) {
  std::string out = paint(text(answer, "policy"), Colour::bold, look) + "\n";
  const auto lines = [&](const char* name, const std::string& what) {
    for (const Json& promise : list(answer, name)) {
      // After a switch of the policy, the list may contain only job numbers.
      const std::string id = promise.is_number_integer() ? promise.dump() : count(promise, "job");
      const std::string by = clock(promise, "promised", look);
      const bool broken = field(promise, "honoured") == Json(false);
      out += fmt::format(
          "  job {}{}{}{}\n", id, what, by.empty() ? "" : " to finish by " + by,
          broken ? paint(", which this policy does not honour", Colour::red, look) : "");
    }
  };
  lines("promises", " is promised");
  if (!list(answer, "not_honoured").empty()) {
    out += paint("This policy does not honour what was promised before:", Colour::red, look) + "\n";
    lines("not_honoured", " was promised");
  }
  return out;
}

std::string health(const Json& answer, const Look& look) {
  std::string out;
  for (const Json& problem : list(answer, "problems")) {
    out += fmt::format("{} {}\n    {}\n", paint("-", Colour::red, look), text(problem, "what"),
                       text(problem, "remedy"));
  }
  return out.empty() ? "all is well\n" : out;
}

std::string explanation(const Json& answer, const Look& look) {
  std::string out;
  const auto words = [&](const char* name, const char* before) {
    for (const Json& sentence : list(answer, name)) {
      if (!sentence.is_string()) continue;
      out += before + for_terminal(sentence.get_ref<const std::string&>()) + "\n";
    }
  };
  words("sentences", "");
  std::string ids;
  for (const Json& id : list(answer, "waits_for")) {
    if (id.is_number_integer()) ids += (ids.empty() ? "" : ", ") + id.dump();
  }
  if (!ids.empty()) out += fmt::format("It waits for: {}\n", ids);
  std::string rivals;
  for (const Json& id : list(field(answer, "market"), "outbid_by")) {
    if (id.is_number_integer()) rivals += (rivals.empty() ? "" : ", ") + id.dump();
  }
  if (!rivals.empty()) out += fmt::format("Jobs that bid more: {}\n", rivals);
  if (!list(answer, "would_change").empty()) out += "What would change that:\n";
  words("would_change", "  - ");
  const Json& decision = field(answer, "decision");
  if (decision.is_object()) {
    out += paint(fmt::format("From decision {} of {}, {}.", count(decision, "number"),
                             text(decision, "policy"), clock(decision, "at", look)),
                 Colour::grey, look) +
           "\n";
  }
  return out;
}

std::string submission(const Json& answer, const Look& look) {
  const Json& verdict = field(answer, "verdict");
  const Json& admitted = field(verdict, "admitted");
  const std::string id = count(answer, "id");
  const std::string name = text(answer, "name");
  std::string out = id.empty() ? "dry run" : fmt::format("job {}", id);
  if (!name.empty() && !id.empty()) out += fmt::format(" ({})", name);
  const std::string said = text(verdict, "text");
  const Colour colour = admitted == Json(false)  ? Colour::red
                        : admitted == Json(true) ? Colour::green
                                                 : Colour::yellow;
  out += ": " + paint(said.empty() ? text(answer, "state") : said, colour, look) + "\n";
  for (const Json& step : list(answer, "plan")) {
    const std::string gpus = count(step, "gpus");
    out += fmt::format("  from {}: {} GPU{}\n", clock(step, "from", look), gpus,
                       gpus == "1" ? "" : "s");
  }
  return out;
}

// --- one job -------------------------------------------------------------------------------------

namespace {

class Sheet {
 public:
  explicit Sheet(const Look& look) : look_(look) {}

  void line(const char* name, const std::string& value, Colour colour = Colour::none) {
    if (value.empty()) return;
    text_ += fmt::format("{:>10}  {}\n", name, paint(value, colour, look_));
  }
  [[nodiscard]] std::string& text() { return text_; }

 private:
  const Look& look_;
  std::string text_;
};

void deadline_lines(Sheet& sheet, const Json& job, const Look& look) {
  const auto slack = number(job, "slack_seconds");
  std::string deadline = clock(job, "deadline", look);
  if (deadline.empty()) return;
  if (slack) deadline += fmt::format(", slack {}", slack_text(*slack));
  sheet.line("deadline", deadline, slack ? colour_of_slack(*slack) : Colour::none);
  const std::string promised = clock(job, "promised", look);
  const bool broken = field(job, "honoured") == Json(false);
  if (!promised.empty()) {
    sheet.line("promised", promised + (broken ? ", not honoured by this policy" : ""),
               broken ? Colour::red : Colour::none);
  }
}

std::string progress_text(const Json& job) {
  const Json& progress = field(job, "progress");
  std::vector<std::string> parts;
  const auto add = [&](const char* name, const char* unit, double least) {
    const auto value = number(progress, name);
    if (value && *value > least) parts.push_back(fmt::format("{} {:.6g}", unit, *value));
  };
  if (const auto done = number(progress, "done")) {
    parts.push_back(fmt::format("{} {}", bar(*done, 20), done_text(job)));
  }
  add("step", "step", 0);
  add("epoch", "epoch", 0);
  add("samples", "samples", 0);
  add("loss", "loss", -INFINITY);
  const auto rate = number(progress, "rate");
  if (rate && *rate > 0) parts.push_back(fmt::format("{:.4g} samples/s", *rate));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void fate_lines(Sheet& sheet, const Json& job) {
  std::vector<std::string> counts;
  for (const std::string name : {"resize", "restart", "failure"}) {
    const std::string value = count(job, (name + "s").c_str());
    const bool one = value == "1";
    if (!value.empty()) counts.push_back(fmt::format("{} {}{}", value, name, one ? "" : "s"));
  }
  sheet.line("so far", fmt::format("{}", fmt::join(counts, ", ")));
  if (const auto pause = number(job, "last_pause_seconds"))
    sheet.line("stood", fmt::format("still for {:.1f} s at its last resize", *pause));
  if (const auto used = number(job, "gpu_seconds"); used && *used > 0) {
    sheet.line("GPU time", elapsed(*used));
  }
  const std::string code = count(job, "exit_code");
  sheet.line("exit code", code, code == "0" ? Colour::none : Colour::red);
}

}  // namespace

std::string job(const Json& job, const Json& events, const Look& look) {
  Sheet sheet(look);
  const std::string state = text(job, "state");
  const std::string reason = text(job, "reason");
  sheet.line("job", fmt::format("{}  {}", count(job, "id"), text(job, "name")), Colour::bold);
  sheet.line("user", text(job, "user"));
  sheet.line("state", state + (reason.empty() ? "" : " (" + reason + ")"), colour_of_state(state));
  sheet.line("note", text(job, "note"));
  const std::string slots = node_list(field(job, "slots"));
  const std::string gpus = count(job, "gpus");
  if (!gpus.empty()) {
    sheet.line("GPUs", fmt::format("{} of {}{}", gpus, limits_text(field(job, "limits")),
                                   slots.empty() ? "" : " on " + slots));
  }
  sheet.line("batch", count(job, "batch"));
  sheet.line("progress", progress_text(job));
  sheet.line("submitted", clock(job, "submitted", look));
  sheet.line("started", clock(job, "started", look));
  sheet.line("ended", clock(job, "ended", look));
  if (time(job, "started")) sheet.line("time", time_used(job, look));
  if (!has_ended(state)) sheet.line("ETA", clock(job, "eta", look));
  deadline_lines(sheet, job, look);
  sheet.line("position", count(job, "position"));
  std::string plan;
  for (const Json& step : list(job, "plan")) {
    plan += fmt::format("{}{} from {}", plan.empty() ? "" : ", ", count(step, "gpus"),
                        clock(step, "from", look));
  }
  sheet.line("plan", plan);
  fate_lines(sheet, job);
  sheet.line("profile", text(job, "profile"));
  sheet.line("command", command_text(list(job, "command")));
  std::string& out = sheet.text();
  if (!list(events, "events").empty()) {
    out += "\n" + event_lines(list(events, "events"), look, false);
  }
  return out;
}

// --- the live view -------------------------------------------------------------------------------

namespace {

// Which worker of its job is in a slot, if the node's part of the answer does not say it.
std::string worker_in(const Json& jobs, const std::string& id, const std::string& slot) {
  for (const Json& job : list(jobs, "jobs")) {
    if (count(job, "id") != id) continue;
    const Json& slots = list(job, "slots");
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == Json(slot)) return std::to_string(i);
    }
  }
  return "";
}

constexpr int kSlotColumns = 8;

// "7.3" is worker 3 of job 7.
Cell slot_cell(const Json* used, const Json& jobs, const std::string& slot) {
  if (used == nullptr) return {".", Colour::grey};
  const std::string id = count(*used, "job");
  if (id.empty()) return {"other", Colour::grey};
  std::string worker = count(*used, "worker");
  if (worker.empty()) worker = worker_in(jobs, id, slot);
  return {worker.empty() ? id : id + "." + worker, colour_of_job(parse_integer(id).value_or(0))};
}

std::vector<Cell> slot_cells(const Json& node, const Json& jobs) {
  constexpr int kMostGpus = 1024;
  const int gpus =
      static_cast<int>(std::clamp(number(node, "gpus").value_or(0), 0.0, 1.0 * kMostGpus));
  std::vector<const Json*> used(static_cast<std::size_t>(gpus));
  for (const Json& slot : list(node, "used")) {
    const auto gpu = number(slot, "gpu").value_or(-1);
    if (gpu >= 0 && gpu < gpus) used[static_cast<std::size_t>(gpu)] = &slot;
  }
  std::vector<Cell> cells;
  cells.reserve(used.size());
  for (const Json* use : used) {
    cells.push_back(slot_cell(use, jobs, fmt::format("{}.{}", count(node, "id"), cells.size())));
  }
  for (const Json& gpu : list(node, "others")) {
    const double at = gpu.is_number() ? gpu.get<double>() : -1;
    if (at >= 0 && at < gpus && used[static_cast<std::size_t>(at)] == nullptr)
      cells[static_cast<std::size_t>(at)] = {"-"};
  }
  return cells;
}

std::string node_lines(const Json& node, const Json& jobs, const Look& look) {
  const std::string id = count(node, "id");
  const std::string state = text(node, "state");
  const std::string head =
      fmt::format("node {:<4} ", id) + paint(fitted(state, 9), colour_of_state(state), look);
  constexpr int kHead = 19;
  const int across = look.columns > 0 ? std::max((look.columns - kHead) / kSlotColumns, 1) : 16;
  std::string out = head;
  int column = 0;
  for (const Cell& cell : slot_cells(node, jobs)) {
    if (column > 0 && column % across == 0) out += "\n" + std::string(kHead, ' ');
    out += paint("[" + fitted(cell.text, kSlotColumns - 2) + "]", cell.colour, look);
    ++column;
  }
  return out + "\n";
}

bool holds_gpus(const Json& job) { return number(job, "gpus").value_or(0) > 0; }

// "37s" until the expected end. Empty for jobs that have ended.
std::string eta_text(const Json& job, const Look& look) {
  const auto eta = time(job, "eta");
  return eta && !has_ended(text(job, "state")) ? rough(seconds_between(look.now, *eta)) : "";
}

std::string loss_text(const Json& job) {
  const auto loss = number(field(job, "progress"), "loss");
  return loss ? fmt::format("{:.4g}", *loss) : "";
}

// On short lines, users and losses are left out in favour of reasons.
std::string top_jobs(const Json& jobs, const Look& look) {
  const bool narrow = look.columns > 0 && look.columns < kNarrow;
  std::vector<std::string> titles = {">JOBID",   "NAME",  "ST",   ">TIME", ">GPUS",
                                     "PROGRESS", ">DONE", ">ETA", ">SLACK"};
  if (!narrow) titles.insert(titles.begin() + 2, "USER");
  if (!narrow) titles.emplace_back(">LOSS");
  titles.emplace_back("REASON");
  Table table(std::move(titles));
  table.limit(1, widest_name(look));
  if (!narrow) table.limit(2, widest_user(look));
  for (const Json& job : list(jobs, "jobs")) {
    std::vector<Cell> row;
    row.reserve(12);
    const std::string id = count(job, "id");
    row.push_back(
        {id, holds_gpus(job) ? colour_of_job(parse_integer(id).value_or(0)) : Colour::none});
    row.push_back({text(job, "name")});
    if (!narrow) row.push_back({text(job, "user")});
    row.push_back(state_cell(text(job, "state")));
    row.push_back({time_used(job, look)});
    row.push_back({count(job, "gpus")});
    row.push_back({bar(number(field(job, "progress"), "done").value_or(0), kBar)});
    row.push_back({done_text(job)});
    row.push_back({eta_text(job, look)});
    row.push_back(slack_cell(job));
    if (!narrow) row.push_back({loss_text(job)});
    row.push_back({text(job, "reason")});
    table.add(std::move(row));
  }
  return table.text(look);
}

std::string cut_rows(const std::string& frame, int rows) {
  if (rows <= 0) return frame;
  std::size_t end = 0;
  for (int row = 0; row < rows; ++row) {
    const auto next = frame.find('\n', end);
    if (next == std::string::npos) return frame;
    end = next + 1;
  }
  return frame.substr(0, end);
}

}  // namespace

std::string top(const Json& nodes, const Json& jobs, const Json& policy, const Look& look,
                int rows) {
  double gpus = 0;
  std::size_t used = 0;
  for (const Json& node : list(nodes, "nodes")) {
    gpus += number(node, "gpus").value_or(0);
    used += list(node, "used").size();
  }
  int running = 0;
  int waiting = 0;
  for (const Json& job : list(jobs, "jobs")) {
    if (has_ended(text(job, "state"))) continue;
    ++(holds_gpus(job) ? running : waiting);
  }
  const std::string title =
      fmt::format("{}  {}  {} of {:.0f} GPUs in use, {} running, {} waiting", clock(look.now, look),
                  text(policy, "policy"), used, gpus, running, waiting);
  const int wide =
      look.columns > 0 ? std::min(look.columns, text_columns(title)) : text_columns(title);
  std::string frame = paint(fitted(title, wide), Colour::bold, look) + "\n\n";
  for (const Json& node : list(nodes, "nodes")) frame += node_lines(node, jobs, look);
  frame += "\n" + top_jobs(jobs, look);
  return cut_rows(frame, rows);
}

std::string top_gist(const Json& nodes, const Json& jobs) {
  std::string gist;
  for (const Json& node : list(nodes, "nodes")) {
    gist += text(node, "state");
    for (const Cell& cell : slot_cells(node, jobs)) gist += " " + cell.text;
  }
  for (const Json& job : list(jobs, "jobs")) {
    gist += fmt::format("\n{} {} {}", count(job, "id"), text(job, "state"), text(job, "reason"));
  }
  return gist;
}

std::string top_lines(const Json& nodes, const Json& jobs, const Look& look) {
  std::string out = clock(look.now, look);
  const auto indent = std::string(out.size(), ' ');
  constexpr int kLineColumns = 110;
  int used = text_columns(out);
  for (const Json& node : list(nodes, "nodes")) {
    std::string slots;
    const std::string state = text(node, "state");
    for (const Cell& cell : slot_cells(node, jobs)) slots += fmt::format(" {:<4}", cell.text);
    const std::string one = fmt::format("  node {}{}:{}", count(node, "id"),
                                        state == "up" ? "" : " (" + state + ")", slots);
    if (used + text_columns(one) > kLineColumns) {
      out += "\n" + indent;
      used = text_columns(indent);
    }
    out += one;
    used += text_columns(one);
  }
  while (out.ends_with(' ')) out.pop_back();
  out += "\n";
  for (const Json& job : list(jobs, "jobs")) {
    const auto slack = number(job, "slack_seconds");
    const std::string eta = eta_text(job, look);
    const std::string loss = loss_text(job);
    const std::string reason = text(job, "reason");
    const std::string gpus = count(job, "gpus");
    out += fmt::format(
        "{:>8}  {:<12} {:<2} {:>3} {} {} {:>4}", count(job, "id"), fitted(text(job, "name"), 12),
        short_state(text(job, "state")), gpus, gpus == "1" ? "GPU " : "GPUs",
        bar(number(field(job, "progress"), "done").value_or(0), kBar), done_text(job));
    if (!eta.empty()) out += "  eta " + eta;
    if (slack) out += "  slack " + slack_text(*slack);
    if (!loss.empty()) out += "  loss " + loss;
    if (!reason.empty()) out += "  (" + reason + ")";
    out += "\n";
  }
  return out;
}

}  // namespace rubato::client::render

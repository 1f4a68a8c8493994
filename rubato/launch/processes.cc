#include "rubato/launch/processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/wire/socket.h"

namespace rubato::launch {
namespace {

// Errors that mean "could not look", as opposed to "does not exist".
bool may_pass(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
}

}  // namespace

std::optional<std::string> proc_file(int pid, const char* name) {
  const wire::Fd fd(open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> buffer;  // NOLINT: filled by read
  for (;;) {
    const ssize_t size = fd.valid() ? read(fd.get(), buffer.data(), buffer.size()) : -1;
    if (size < 0 && may_pass(errno)) return std::nullopt;
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

std::optional<std::vector<std::string>> environment_of_process(int pid) {
  const auto text = proc_file(pid, "environ");
  if (!text) return std::nullopt;
  std::vector<std::string> lines;
  for (const std::string_view line : split(*text, '\0')) {
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

std::optional<std::vector<ProcessEntry>> all_processes() {
  DIR* entries = opendir("/proc");
  if (entries == nullptr) return std::nullopt;
  std::vector<ProcessEntry> table;
  bool whole = true;
  errno = 0;
  while (const dirent* entry = readdir(entries)) {
    const auto number = parse_integer(entry->d_name);
    if (number && *number > 0) {
      const int pid = static_cast<int>(*number);
      const auto state = wire::look_at_process(pid);
      whole &= state.has_value();
      if (state && state->start_time != 0) {
        table.push_back({{pid, state->start_time}, state->parent, state->ended});
      }
    }
    errno = 0;
  }
  whole &= errno == 0;
  closedir(entries);
  return whole ? std::optional(std::move(table)) : std::nullopt;
}

std::vector<ProcessName> below(int root, const std::vector<ProcessEntry>& table) {
  std::multimap<int, ProcessName> children;
  for (const ProcessEntry& entry : table) children.emplace(entry.parent, entry.name);
  std::vector<ProcessName> found;
  std::vector<int> open = {root};
  while (!open.empty()) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = first; child != last; ++child) {
      found.push_back(child->second);
      open.push_back(child->second.pid);
    }
    children.erase(first, last);  // each one once, even if the table contradicts itself
  }
  return found;
}

bool lives(const ProcessName& process) {
  const auto there = wire::look_at_process(process.pid);
  if (!there) return true;
  return there->start_time != 0 && there->start_time == process.start_time && !there->ended;
}

ProcessName own_name() { return {getpid(), wire::start_time_of(getpid())}; }

}  // namespace rubato::launch

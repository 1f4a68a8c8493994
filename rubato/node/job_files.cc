#include "rubato/node/job_files.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::node {
namespace {

Error failed(const char* verb, const std::string& path) {
  return {fmt::format("cannot {} {}: {}", verb, path, std::strerror(errno))};
}

template <class T>
Result<std::optional<T>> read_as(const std::string& path, Result<T> (*parse)(const Json&)) {
  const auto json = read_json_file(path);
  if (!json) return json.error();
  if (!*json) return std::optional<T>();
  auto value = parse(**json);
  if (!value) return Error{fmt::format("{}: {}", path, value.error().message)};
  return std::optional<T>(std::move(*value));
}

}  // namespace

Result<HeldDirectory> HeldDirectory::open(const std::string& path) {
  wire::Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return failed("open", path);
  return HeldDirectory(std::move(fd), path);
}

// A process whose program its user may execute but not read cannot read its own /proc entry.
std::string HeldDirectory::own_path() const {
  const std::string link = fmt::format("/proc/self/fd/{}", fd_.get());
  return access((link + "/.").c_str(), X_OK) == 0 ? link : path_;
}

std::string HeldDirectory::path() const {
  std::array<char, PATH_MAX> target{};
  const std::string link = fmt::format("/proc/self/fd/{}", fd_.get());
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : path_;
}

Error HeldDirectory::shown(Error error) const {
  const std::string own = own_path();
  const std::size_t at = error.message.find(own);
  if (at != std::string::npos) error.message.replace(at, own.size(), path());
  return error;
}

Result<std::optional<JobLaunch>> read_launch(const JobFiles& files) {
  return read_as<JobLaunch>(files.launch(), parse_job_launch);
}
Result<std::optional<ProcessName>> read_master(const JobFiles& files) {
  return read_as<ProcessName>(files.master(), parse_process_name);
}
Result<std::vector<WorkerRecord>> read_workers(const JobFiles& files) {
  auto workers = read_as<std::vector<WorkerRecord>>(files.workers(), parse_worker_records);
  if (!workers) return workers.error();
  return *workers ? std::move(**workers) : std::vector<WorkerRecord>();
}
Result<std::optional<JobExit>> read_exit(const JobFiles& files) {
  return read_as<JobExit>(files.exit(), parse_job_exit);
}

Generation read_generation(const std::string& path) {
  const auto json = read_json_file(path);
  if (!json || !*json || !(*json)->is_object()) return Generation(0);
  const auto found = (*json)->find("generation");
  if (found == (*json)->end() || !found->is_number_unsigned()) return Generation(0);
  return Generation(found->get<Generation::rep>());
}

Json generation_file(Generation generation) { return {{"generation", generation.value()}}; }

}  // namespace rubato::node

#include "rubato/daemon/job_texts.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/unicode.h"
#include "rubato/wire/socket.h"

namespace rubato::daemon {
namespace {

Error cannot_text(const char* what, const std::string& path) {
  return Error{fmt::format("cannot_text {} {}: {}", what, path, std::strerror(errno))};
}

// Cuts a text in UTF-8 at a whole character, so that it has at most this many bytes.
std::string_view beginning(std::string_view text, std::size_t most) {
  std::size_t end = 0;
  while (end < text.size()) {
    const auto c = first_code_point(text.substr(end));
    const std::size_t next = end + (c ? c->bytes : 1);
    if (next > most) break;
    end = next;
  }
  return text.substr(0, end);
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  const wire::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                             S_IRUSR | S_IWUSR));
  if (!file.valid()) return cannot_text("write", path);
  while (!text.empty()) {
    const auto written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return cannot_text("write", path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file.get()) != 0) return cannot_text("write", path);
  return {};
}

Result<void> sync_directory(const std::string& path) {
  const wire::Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || ::fsync(directory.get()) != 0) return cannot_text("write", path);
  return {};
}

Result<std::string> read_whole(const std::string& path) {
  const wire::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return cannot_text("read", path);
  // The canonical text is a little longer than what was sent, at most by escapes.
  constexpr std::size_t kMost = 8 * kLargestJobFile;
  std::string text;
  std::vector<char> piece(kLargestJobFile);
  for (;;) {
    const auto got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_text("read", path);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > kMost) return Error{fmt::format("{} is too long for a job file", path)};
  }
}

}  // namespace

Result<std::string> text_of(const JobFile& file) { return canonical_json(to_json(file)); }

Digest digest_of_text(std::string_view text) { return Digester().add(text).finish(); }

JobFile shortened(JobFile file) {
  std::vector<std::string> words;
  std::size_t room = kShortCommand;
  for (const std::string& word : file.command) {
    words.emplace_back(beginning(word, room));
    if (word.size() >= room) break;
    room -= word.size() + 1;
  }
  words.shrink_to_fit();
  file.command = std::move(words);
  file.env.clear();
  file.secrets.clear();
  return file;
}

std::string JobTexts::path_of(const Digest& digest) const { return directory_ + "/" + hex(digest); }

Result<void> JobTexts::keep(const Digest& digest, std::string_view text) {
  const std::string path = path_of(digest);
  // A file gets this name only after its content is durable, so it is complete.
  if (::access(path.c_str(), F_OK) == 0) return {};
  if (::mkdir(directory_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return cannot_text("make", directory_);
  const std::string fresh = path + ".new";
  if (auto written = write_whole(fresh, text); !written) {
    ::unlink(fresh.c_str());
    return written;
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return cannot_text("write", path);
  return sync_directory(directory_);
}

Result<JobFile> JobTexts::load(const Digest& digest) const {
  const std::string path = path_of(digest);
  auto text = read_whole(path);
  if (!text) return text.error();
  if (digest_of_text(*text) != digest)
    return Error{fmt::format("{} is not what was stored there", path)};
  const auto json = parse_json(*text, path);
  if (!json) return json.error();
  return read_job(*json, path);
}

void JobTexts::remove(const Digest& digest) const { ::unlink(path_of(digest).c_str()); }

void JobTexts::remove_all_but(const std::set<Digest>& needed) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const auto digest = parse_digest(entry.path().filename().string());
    if (!digest || !needed.contains(*digest)) ::unlink(entry.path().c_str());
  }
}

}  // namespace rubato::daemon

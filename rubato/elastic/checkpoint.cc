#include "rubato/elastic/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <compare>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::elastic {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMagic = "RUBATOCK";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kAlignment = 64;
constexpr std::string_view kPrefixOfNames = "step-";
constexpr std::string_view kSuffixOfNames = ".ckpt";
constexpr std::string_view kSuffixOfTemporaries = ".tmp";
constexpr std::size_t kLargestWrite = std::size_t{1} << 30U;

struct Prefix {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Prefix) == 24);

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Of everything in the prefix before the checksum, and of the header.
std::uint64_t header_checksum(const Prefix& prefix, std::string_view header) {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(&prefix, 1)).first(offsetof(Prefix, checksum)));
  checksum.add(bytes_of(header));
  return checksum.value();
}

// Start, plan, revision, step: in the order of their age.
struct Age {
  std::int64_t start = 0;
  std::int64_t plan = 0;
  std::int64_t revision = 0;
  std::int64_t step = 0;
  friend auto operator<=>(const Age&, const Age&) = default;
  [[nodiscard]] std::tuple<std::int64_t, std::int64_t, std::int64_t> generation() const {
    return {start, plan, revision};
  }
};

std::optional<std::int64_t> integer(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  return found->get<std::int64_t>();
}

std::optional<Age> age_of(const Json& about) {
  if (!about.is_object()) return std::nullopt;
  // Jobs of which nobody counts the starts do not have it.
  const auto start =
      about.contains("start") ? integer(about, "start") : std::optional<std::int64_t>(0);
  const auto plan = integer(about, "plan");
  const auto revision = integer(about, "revision");
  const auto step = integer(about, "step");
  if (!start || !plan || !revision || !step || *step < 0) return std::nullopt;
  return Age{*start, *plan, *revision, *step};
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool ok() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

Error failed(const std::string& path, std::string_view what, int error) {
  return Error{fmt::format("{}: {}: {}", path, what, std::strerror(error))};
}

// --- reading ---

// As many bytes as there are, up to the size of the span.
Result<std::size_t> read_at(const File& file, const std::string& path, std::span<std::byte> into,
                            std::uint64_t offset) {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto want = std::min(into.size() - done, kLargestWrite);
    const auto got =
        ::pread(file.get(), into.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(path, "cannot be read", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

struct SectionHeader {
  std::string name;
  Json head;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

// What the start of a file says, checked against its size.
struct Header {
  Age age;
  Json about;
  std::vector<SectionHeader> sections;
  std::uint64_t body_offset = 0;
  std::uint64_t padding_before = 0;  // zeros between the header and the body
  std::uint64_t file_bytes = 0;
};

Error damaged(const std::string& path, std::string_view why) {
  return Error{fmt::format("{}: a damaged checkpoint: {}", path, why)};
}

std::optional<SectionHeader> parse_section(Json& json) {
  if (!json.is_object() || !json.contains("head")) return std::nullopt;
  const auto name = json.find("name");
  const auto bytes = json.find("bytes");
  const auto checksum = json.find("checksum");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  if (bytes == json.end() || !bytes->is_number_unsigned()) return std::nullopt;
  if (checksum == json.end() || !checksum->is_number_unsigned()) return std::nullopt;
  return SectionHeader{name->get<std::string>(), std::move(json["head"]),
                       bytes->get<std::uint64_t>(), checksum->get<std::uint64_t>()};
}

Result<Header> parse_header(std::string_view text, const std::string& path,
                            std::uint64_t file_bytes) {
  auto json = parse_json(text, path);
  if (!json) return json.error();
  if (!json->is_object() || !json->contains("about") || !json->contains("sections") ||
      !(*json)["sections"].is_array())
    return damaged(path, "its header is not that of a checkpoint");
  Header header;
  header.about = std::move((*json)["about"]);
  const auto age = age_of(header.about);
  if (!age) return damaged(path, "its header does not say plan, revision and step");
  header.age = *age;
  header.file_bytes = file_bytes;
  header.body_offset = padded(sizeof(Prefix) + text.size());
  header.padding_before = header.body_offset - sizeof(Prefix) - text.size();
  std::uint64_t end = header.body_offset;
  for (auto& entry : (*json)["sections"]) {
    auto section = parse_section(entry);
    if (!section) return damaged(path, "its header describes a section wrongly");
    // Both are at most the size of a file, so the sum cannot overflow.
    if (end > file_bytes || section->bytes > file_bytes - end)
      return damaged(path, fmt::format("cut off after {} bytes, inside or before section {}",
                                       file_bytes, base::quoted(section->name)));
    end += padded(section->bytes);
    header.sections.push_back(std::move(*section));
  }
  if (end != file_bytes)
    return damaged(path, fmt::format("{} bytes long instead of {}", file_bytes, end));
  return header;
}

Result<Header> read_header(const File& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return failed(path, "cannot be examined", errno);
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("{}: is not a file", path)};
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  Prefix prefix;
  auto got = read_at(file, path, std::as_writable_bytes(std::span(&prefix, 1)), 0);
  if (!got) return got.error();
  const auto magic = std::string_view(prefix.magic.data(), std::min(kMagic.size(), *got));
  if (magic != kMagic.substr(0, magic.size()))
    return Error{fmt::format("{}: is not a checkpoint of Rubato, or its start is damaged", path)};
  if (*got < sizeof(Prefix)) return damaged(path, fmt::format("cut off after {} bytes", *got));
  if (prefix.version > kVersion)
    return Error{fmt::format(
        "{}: has format version {}, and this Rubato reads up to {}; use the Rubato that "
        "wrote it, unless it is damaged",
        path, prefix.version, kVersion)};
  if (prefix.version < 1) return damaged(path, "format version 0 does not exist");
  if (prefix.header_bytes > JsonLimits{}.bytes)
    return damaged(path, fmt::format("a header of {} bytes cannot be", prefix.header_bytes));
  if (prefix.header_bytes > file_bytes - sizeof(Prefix))
    return damaged(path, fmt::format("cut off after {} bytes, inside its header", file_bytes));
  std::string text(prefix.header_bytes, '\0');
  got = read_at(file, path, std::as_writable_bytes(std::span(text.data(), text.size())),
                sizeof(Prefix));
  if (!got) return got.error();
  if (*got < text.size()) return damaged(path, "cut off while it was read");
  if (header_checksum(prefix, text) != prefix.checksum)
    return damaged(path, "the checksum of its header does not hold");
  return parse_header(text, path, file_bytes);
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Cuts the body into the header's sections, verifying each and the zeros between.
Result<void> take_sections(Header& header, std::span<const std::byte> body, Loaded& loaded) {
  std::uint64_t at = 0;
  for (auto& section : header.sections) {
    const auto bytes = body.subspan(at, section.bytes);
    Checksum checksum;
    checksum.add(bytes);
    if (checksum.value() != section.checksum)
      return damaged(loaded.path, fmt::format("the checksum of section {} does not hold",
                                              base::quoted(section.name)));
    const std::uint64_t end = at + padded(section.bytes);
    if (!all_zero(body.subspan(at + section.bytes, end - at - section.bytes)))
      return damaged(loaded.path, "there is something between its sections");
    loaded.sections.push_back({std::move(section.name), std::move(section.head), bytes});
    at = end;
  }
  return {};
}

Result<Loaded> load_open(const File& file, const std::string& path) {
  auto header = read_header(file, path);
  if (!header) return header.error();
  const std::uint64_t body_bytes = header->file_bytes - header->body_offset;
  // The zeros before the body are read with it and stand in a block of their own.
  Loaded loaded;
  loaded.path = path;
  loaded.about = std::move(header->about);
  loaded.start = header->age.start;
  loaded.plan = header->age.plan;
  loaded.revision = header->age.revision;
  loaded.step = header->age.step;
  const std::uint64_t whole = kAlignment + body_bytes;
  loaded.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole)));
  if (!loaded.memory) return Error{fmt::format("{}: no memory for its {} bytes", path, whole)};
  const std::span<std::byte> memory(loaded.memory.get(), whole);
  const auto wanted = memory.subspan(kAlignment - header->padding_before);
  const auto got = read_at(file, path, wanted, header->body_offset - header->padding_before);
  if (!got) return got.error();
  if (*got < wanted.size()) return damaged(path, "cut off while it was read");
  if (!all_zero(wanted.first(header->padding_before)))
    return damaged(path, "there is something between its header and its sections");
  if (auto ok = take_sections(*header, memory.subspan(kAlignment), loaded); !ok) return ok.error();
  return loaded;
}

// --- the directory ---

bool is_checkpoint_name(std::string_view name) {
  return name.starts_with(kPrefixOfNames) && name.ends_with(kSuffixOfNames);
}

// "step-000000000123.ckpt.4711-0.tmp"
bool is_temporary_name(std::string_view name) {
  return name.starts_with(kPrefixOfNames) && name.ends_with(kSuffixOfTemporaries);
}

std::string name_of(std::int64_t step) {
  return fmt::format("{}{:012}{}", kPrefixOfNames, step, kSuffixOfNames);
}

std::string inside(const std::string& directory, std::string_view name) {
  return fmt::format("{}/{}", directory, name);
}

Result<std::vector<std::string>> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) return failed(directory, "cannot be listed", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

struct Found {
  std::string path;
  std::optional<Age> age;  // nullopt: its header cannot be used
  std::string problem;
};

// All checkpoints by their headers: the newest first, the damaged ones last.
Result<std::vector<Found>> survey(const std::string& directory) {
  auto names = names_in(directory);
  if (!names) return names.error();
  std::vector<Found> all;
  for (const auto& name : *names) {
    if (!is_checkpoint_name(name)) continue;
    Found found{inside(directory, name), {}, {}};
    const File file(::open(found.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.ok() && errno == ENOENT) continue;  // another writer removed it
    const auto header =
        file.ok() ? read_header(file, found.path) : failed(found.path, "cannot be opened", errno);
    if (header) {
      found.age = header->age;
    } else {
      found.problem = header.error().message;
    }
    all.push_back(std::move(found));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return b.age < a.age; });
  return all;
}

// Holds DIR/.lock. Its holders need it for moments only; one that keeps it is stuck, and training
// must hear of that rather than wait.
Result<File> lock_directory(const std::string& directory) {
  constexpr auto kPatience = std::chrono::seconds(20);
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto path = inside(directory, ".lock");
  File file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.ok()) return failed(path, "cannot be made", errno);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return failed(path, "cannot be locked", errno);
    if (std::chrono::steady_clock::now() > until)
      return Error{fmt::format("{}: locked by another process for more than {} s; is it stopped?",
                               path, kPatience.count())};
    std::this_thread::sleep_for(kPause);
  }
  return file;
}

// What the lock file says: "START OF-THE-JOB DIGEST".
struct Claim {
  std::int64_t start = 0;   // of the directory: grows with every other owner
  std::int64_t of_job = 0;  // CheckpointOwner::start
  std::int64_t job = 0;     // digest
};

// All zeros if nobody has claimed it.
Claim claim_in(const File& lock) {
  std::array<char, 100> text{};
  const auto size = ::pread(lock.get(), text.data(), text.size(), 0);
  if (size <= 0) return {};
  const auto words = split(trim({text.data(), static_cast<std::size_t>(size)}), ' ');
  if (words.size() != 3) return {};
  return {parse_integer(words[0]).value_or(0), parse_integer(words[1]).value_or(0),
          parse_integer(words[2]).value_or(0)};
}

std::int64_t digest_of(const std::string& job) {
  Checksum checksum;
  checksum.add(bytes_of(job));
  return static_cast<std::int64_t>(checksum.value() >> 1U);
}

Error replaced(const std::string& directory, std::int64_t start, std::int64_t newest) {
  return Error{fmt::format(
      "{}: the checkpoint is refused: its writer belongs to start {} of those that used "
      "this directory, and start {} has replaced it",
      directory, start, newest)};
}

Result<void> sync_directory(const std::string& directory) {
  const File file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.ok()) return failed(directory, "cannot be opened", errno);
  if (::fsync(file.get()) != 0) return failed(directory, "cannot be made durable", errno);
  return {};
}

Result<void> make_directory(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::create_directories(directory, error) && !error) return {};
  if (error) return failed(directory, "cannot be made", error.value());
  return sync_directory(inside(directory, ".."));
}

// --- writing ---

// Removes what was begun unless it was finished.
class Temporary {
 public:
  Temporary(std::string path, File file) : path_(std::move(path)), file_(std::move(file)) {}
  Temporary(Temporary&& other) noexcept
      : path_(std::exchange(other.path_, {})), file_(std::move(other.file_)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  Temporary& operator=(Temporary&&) = delete;
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] const File& file() const { return file_; }
  [[nodiscard]] Result<void> rename(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0)
      return failed(path_, fmt::format("cannot be renamed to {}", path), errno);
    path_.clear();
    return {};
  }

 private:
  std::string path_;
  File file_;
};

Result<void> refuse_older(const std::string& directory, const Age& mine,
                          const std::vector<Found>& present) {
  if (present.empty() || !present.front().age) return {};
  const Age& newest = *present.front().age;
  if (mine.generation() >= newest.generation()) return {};
  if (mine.start < newest.start) return replaced(directory, mine.start, newest.start);
  return Error{
      fmt::format("{}: the checkpoint of step {} is refused: its writer belongs to generation ({}, "
                  "{}), and {} was written by ({}, {}), which replaced it",
                  directory, mine.step, mine.plan, mine.revision, present.front().path, newest.plan,
                  newest.revision)};
}

void remove_leftovers(const std::string& directory) {
  const auto names = names_in(directory);
  if (!names) return;  // what follows needs the directory, too, and will say so
  for (const auto& name : *names) {
    if (!is_temporary_name(name)) continue;
    const auto path = inside(directory, name);
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.ok() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

// Under the lock of the directory, so nobody mistakes it for a leftover before it is locked itself.
Result<Temporary> make_temporary(const std::string& directory, std::int64_t step) {
  for (int attempt = 0;; ++attempt) {
    // Workers on other hosts may have our process id.
    const auto path = inside(directory, fmt::format("{}.{}-{}{}", name_of(step), ::getpid(),
                                                    attempt, kSuffixOfTemporaries));
    File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.ok() && errno == EEXIST && attempt < 1000) continue;
    if (!file.ok()) return failed(path, "cannot be made", errno);
    Temporary temporary(path, std::move(file));
    if (::flock(temporary.file().get(), LOCK_EX | LOCK_NB) != 0)
      return failed(path, "cannot be locked", errno);
    return temporary;
  }
}

// The file as pieces, in order, without a copy of the sections.
struct Image {
  std::string start;  // prefix, header and zeros
  std::vector<std::span<const std::byte>> pieces;
  std::uint64_t bytes = 0;

  void add(std::span<const std::byte> piece) {
    pieces.push_back(piece);
    bytes += piece.size();
  }
};

void make_image(const CheckpointContent& content, Image& image) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  Json sections = Json::array();
  for (const auto& section : content.sections) {
    Checksum checksum;
    std::uint64_t bytes = 0;
    for (const auto piece : section.body) {
      checksum.add(piece);
      bytes += piece.size();
    }
    sections.push_back({{"name", section.name},
                        {"head", section.head},
                        {"bytes", bytes},
                        {"checksum", checksum.value()}});
  }
  const Json json{{"about", content.about}, {"sections", std::move(sections)}};
  const std::string header = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  CHECK(header.size() <= JsonLimits{}.bytes);
  Prefix prefix;
  std::copy(kMagic.begin(), kMagic.end(), prefix.magic.begin());
  prefix.version = kVersion;
  prefix.header_bytes = static_cast<std::uint32_t>(header.size());
  prefix.checksum = header_checksum(prefix, header);
  image.start.assign(reinterpret_cast<const char*>(&prefix), sizeof(prefix));
  image.start += header;
  image.start.resize(padded(image.start.size()), '\0');
  image.add(bytes_of(image.start));
  for (const auto& section : content.sections) {
    for (const auto piece : section.body) image.add(piece);
    image.add(std::span(kZeros).first(padded(image.bytes) - image.bytes));
  }
}

// 0, or the error of the system.
int write_all(const File& file, const Image& image) {
  for (const auto piece : image.pieces) {
    for (std::size_t done = 0; done < piece.size();) {
      const auto want = std::min(piece.size() - done, kLargestWrite);
      const auto wrote = ::write(file.get(), piece.data() + done, want);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return wrote < 0 ? errno : EIO;
      done += static_cast<std::size_t>(wrote);
    }
  }
  return ::fsync(file.get()) == 0 ? 0 : errno;
}

Error no_room(const std::string& path, std::uint64_t bytes, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Error{fmt::format(
      "{}: the checkpoint of {} bytes cannot be written: {}; {}; earlier checkpoints are untouched",
      path, bytes, std::strerror(error),
      full ? "make room or choose another directory" : "look after the disk")};
}

// The newest `keep` stay, and `written` whatever its age. What cannot be read is left alone: it may
// be whole to a newer Rubato, and load_newest() tells the owner of it.
void remove_older(const std::vector<Found>& present, int keep, const std::string& written) {
  int kept = 0;
  for (const auto& found : present) {
    if (!found.age || kept++ < keep || found.path == written) continue;
    ::unlink(found.path.c_str());
  }
}

Result<std::string> write_locked(const std::string& directory, const CheckpointContent& content,
                                 int keep) {
  const auto age = age_of(content.about);
  CHECK(age.has_value() && keep >= 1);
  const auto path = inside(directory, name_of(age->step));

  // The survey under a lock, and the refusal that may follow from it.
  const auto look = [&](const File& lock) -> Result<std::vector<Found>> {
    if (const auto newest = claim_in(lock).start; age->start < newest) {
      return replaced(directory, age->start, newest);
    }
    auto present = survey(directory);
    if (!present) return present.error();
    if (auto ok = refuse_older(directory, *age, *present); !ok) return ok.error();
    return present;
  };
  auto temporary = [&]() -> Result<Temporary> {
    const auto lock = lock_directory(directory);
    if (!lock) return lock.error();
    if (auto present = look(*lock); !present) return present.error();
    remove_leftovers(directory);
    return make_temporary(directory, age->step);
  }();
  if (!temporary) return temporary.error();

  Image image;
  make_image(content, image);
  if (const int error = write_all(temporary->file(), image); error != 0)
    return no_room(path, image.bytes, error);

  const auto lock = lock_directory(directory);
  if (!lock) return lock.error();
  if (auto present = look(*lock); !present) return present.error();
  if (auto ok = temporary->rename(path); !ok) return ok.error();
  if (auto ok = sync_directory(directory); !ok) return ok.error();
  if (auto present = survey(directory); present) remove_older(*present, keep, path);
  return path;
}

}  // namespace

// --- the checksum ---

namespace {

constexpr std::uint64_t kMultiplier = 0x9E6C63D0876A9A35ULL;

std::uint64_t stirred(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * kMultiplier;
  return state ^ (state >> 32U);
}

}  // namespace

void Checksum::add_block(const std::byte* block) {
  std::array<std::uint64_t, 4> words;
  std::memcpy(words.data(), block, kBlock);
  for (std::size_t i = 0; i < words.size(); ++i) lanes_[i] = stirred(lanes_[i], words[i]);
}

void Checksum::add(std::span<const std::byte> bytes) {
  const std::size_t held = length_ % kBlock;
  length_ += bytes.size();
  if (held > 0) {
    const std::size_t more = std::min(kBlock - held, bytes.size());
    std::copy_n(bytes.begin(), more, partial_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(more);
    if (held + more < kBlock) return;
    add_block(partial_.data());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) add_block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), partial_.begin());
}

std::uint64_t Checksum::value() const {
  Checksum last = *this;
  if (const std::size_t held = length_ % kBlock; held > 0) {
    std::fill(last.partial_.begin() + static_cast<std::ptrdiff_t>(held), last.partial_.end(),
              std::byte{0});
    last.add_block(last.partial_.data());
  }
  std::uint64_t sum = stirred(0, length_);  // tells a tail of zeros from none
  for (const std::uint64_t lane : last.lanes_) sum = stirred(sum, lane);
  return stirred(sum, 0);
}

// --- the interface ---

void FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

const LoadedSection* Loaded::find(const std::string& name) const {
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [&](const LoadedSection& s) { return s.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

Result<std::string> write_checkpoint(const std::string& directory, const CheckpointContent& content,
                                     int keep) {
  if (auto ok = make_directory(directory); !ok) return ok.error();
  return write_locked(directory, content, keep);
}

Result<std::optional<std::int64_t>> claim_checkpoints(const std::string& directory,
                                                      const CheckpointOwner& owner) {
  if (auto ok = make_directory(directory); !ok) return ok.error();
  const auto lock = lock_directory(directory);
  if (!lock) return lock.error();
  const Claim before = claim_in(*lock);
  Claim mine{before.start, owner.start, digest_of(owner.job)};
  const bool same_job = before.start > 0 && before.job == mine.job;
  if (same_job && mine.of_job < before.of_job) return std::optional<std::int64_t>();
  if (same_job && mine.of_job == before.of_job) return std::optional(before.start);
  auto present = survey(directory);
  if (!present) return present.error();
  if (!present->empty() && present->front().age) {
    mine.start = std::max(mine.start, present->front().age->start);
  }
  ++mine.start;
  // Always of the same length, so that nothing is left of an older one.
  const std::string text = fmt::format("{:020} {:020} {:020}\n", mine.start, mine.of_job, mine.job);
  if (::pwrite(lock->get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::fsync(lock->get()) != 0)
    return failed(inside(directory, ".lock"), "cannot be written", errno);
  return std::optional(mine.start);
}

Result<Loaded> load_checkpoint(const std::string& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return failed(path, "cannot be opened", errno);
  return load_open(file, path);
}

Result<std::optional<Loaded>> load_newest(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) return std::optional<Loaded>();
  const auto present = survey(directory);
  if (!present) return present.error();
  std::optional<Loaded> newest;
  std::vector<SkippedCheckpoint> skipped;
  for (const auto& found : *present) {
    if (!found.age) {
      skipped.push_back({found.path, found.problem});
      continue;
    }
    if (newest) continue;
    auto loaded = load_checkpoint(found.path);
    if (loaded) {
      newest = std::move(*loaded);
    } else {
      skipped.push_back({found.path, loaded.error().message});
    }
  }
  if (newest) {
    newest->skipped = std::move(skipped);
    return newest;
  }
  if (skipped.empty()) return std::optional<Loaded>();
  return Error{
      fmt::format("{}: none of its {} checkpoints can be used (the newest: {}); repair or "
                  "remove them to begin anew",
                  directory, skipped.size(), skipped.front().reason)};
}

CheckpointWriter::CheckpointWriter(std::string directory, int keep, Done done)
    : directory_(std::move(directory)),
      keep_(keep),
      done_(std::move(done)),
      thread_([this] { run(); }) {
  CHECK(keep_ >= 1 && done_ != nullptr);
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::begin(CheckpointContent content, std::shared_ptr<const void> memory) {
  std::optional<Order> order = Order{std::move(content), std::move(memory)};
  {
    const std::lock_guard lock(mutex_);
    std::swap(waiting_, order);
  }
  changed_.notify_all();
  // What was replaced is freed here, outside the lock.
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !writing_ && !waiting_; });
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return waiting_ || closing_; });
    if (!waiting_) return;
    {
      const Order order = std::move(*waiting_);
      waiting_.reset();
      writing_ = true;
      lock.unlock();
      done_(write_checkpoint(directory_, order.content, keep_));
    }
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace rubato::elastic

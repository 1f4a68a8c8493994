#include "rubato/elastic/checkpoint_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/wire/socket.h"

namespace rubato::elastic {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMagic = "RUBATOCK";
constexpr std::uint32_t kVersion = 2;
constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kLargestRead = std::size_t{1} << 30U;

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

// The checksum of that version of the format.
std::uint64_t checksum_of(std::uint32_t version, const Pieces& pieces) {
  return version == 1 ? checksum_v1(pieces) : checksum(pieces);
}

// Covers the prefix up to the checksum, and the header.
std::uint64_t header_checksum(const Prefix& prefix, std::string_view header) {
  return checksum_of(
      prefix.version,
      {std::as_bytes(std::span(&prefix, 1)).first(offsetof(Prefix, checksum)), bytes_of(header)});
}

std::optional<std::int64_t> integer(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  return found->get<std::int64_t>();
}

// Reads as many bytes as there are, at most the size of the span.
Result<std::size_t> read_at(const wire::Fd& file, const std::string& path,
                            std::span<std::byte> into, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto want = std::min(into.size() - done, kLargestRead);
    const auto got =
        ::pread(file.get(), into.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(path, "cannot be read", errno);
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

// The content of the start of a file, checked against the file's size.
struct FileHeader {
  std::uint32_t version = 0;
  CheckpointAge age;
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

Result<FileHeader> parse_header(std::string_view text, const std::string& path,
                                std::uint64_t file_bytes) {
  auto json = parse_json(text, path);
  if (!json) return json.error();
  if (!json->is_object() || !json->contains("about") || !json->contains("sections") ||
      !(*json)["sections"].is_array())
    return damaged(path, "its header is not that of a checkpoint");
  FileHeader header;
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

Result<FileHeader> read_header(const wire::Fd& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return file_error(path, "cannot be examined", errno);
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
  auto header = parse_header(text, path, file_bytes);
  if (header) header->version = prefix.version;
  return header;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Cuts the body into the sections of the header. Verifies each section and the zeros between them.
Result<void> take_sections(FileHeader& header, std::span<const std::byte> body, Loaded& loaded) {
  std::uint64_t at = 0;
  for (auto& section : header.sections) {
    const auto bytes = body.subspan(at, section.bytes);
    if (checksum_of(header.version, {bytes}) != section.checksum)
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

Result<Loaded> load_open(const wire::Fd& file, const std::string& path) {
  auto header = read_header(file, path);
  if (!header) return header.error();
  const std::uint64_t body_bytes = header->file_bytes - header->body_offset;
  // The zeros before the body are read with it, into a block of their own.
  Loaded loaded;
  loaded.path = path;
  loaded.about = std::move(header->about);
  loaded.age = header->age;
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

}  // namespace

Error file_error(const std::string& path, std::string_view what, int error) {
  return Error{fmt::format("{}: {}: {}", path, what, std::strerror(error))};
}

std::optional<CheckpointAge> age_of(const Json& about) {
  if (!about.is_object()) return std::nullopt;
  // It is missing if nobody counted the starts of the job.
  const auto start =
      about.contains("start") ? integer(about, "start") : std::optional<std::int64_t>(0);
  const auto plan = integer(about, "plan");
  const auto revision = integer(about, "revision");
  const auto step = integer(about, "step");
  if (!start || !plan || !revision || !step || *step < 0) return std::nullopt;
  return CheckpointAge{*start, *plan, *revision, *step};
}

CheckpointImage::CheckpointImage(const CheckpointContent& content) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  const auto add = [this](std::span<const std::byte> piece) {
    pieces.push_back(piece);
    bytes += piece.size();
  };
  Json sections = Json::array();
  for (const auto& section : content.sections) {
    std::uint64_t size = 0;
    for (const auto piece : section.body) size += piece.size();
    sections.push_back({{"name", section.name},
                        {"head", section.head},
                        {"bytes", size},
                        {"checksum", checksum_of(kVersion, section.body)}});
  }
  const Json json{{"about", content.about}, {"sections", std::move(sections)}};
  const std::string header = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  CHECK(header.size() <= JsonLimits{}.bytes);
  Prefix prefix;
  std::copy(kMagic.begin(), kMagic.end(), prefix.magic.begin());
  prefix.version = kVersion;
  prefix.header_bytes = static_cast<std::uint32_t>(header.size());
  prefix.checksum = header_checksum(prefix, header);
  start.assign(reinterpret_cast<const char*>(&prefix), sizeof(prefix));
  start += header;
  start.resize(padded(start.size()), '\0');
  add(bytes_of(start));
  for (const auto& section : content.sections) {
    for (const auto piece : section.body) add(piece);
    add(std::span(kZeros).first(padded(bytes) - bytes));
  }
}

void FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

const LoadedSection* Loaded::find(const std::string& name) const {
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [&](const LoadedSection& s) { return s.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

Result<Loaded> load_checkpoint(const std::string& path) {
  const wire::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return file_error(path, "cannot be opened", errno);
  return load_open(file, path);
}

Result<std::optional<CheckpointAge>> read_age(const std::string& path) {
  const wire::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::optional<CheckpointAge>();
  if (!file.valid()) return file_error(path, "cannot be opened", errno);
  const auto header = read_header(file, path);
  if (!header) return header.error();
  return std::optional(header->age);
}

}  // namespace rubato::elastic

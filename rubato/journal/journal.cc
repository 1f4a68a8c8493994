#include "rubato/journal/journal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/journal/journal_place.h"
#include "rubato/journal/wal_tail.h"
#include "rubato/wire/random_hex.h"

namespace rubato::journal {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerOnly = 0600;

Error failed(const fs::path& path, std::string_view what) {
  return Error{fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno))};
}

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  [[nodiscard]] int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

constexpr std::size_t kIdBytes = 16;

// An archived file. Its name says which rows it has: `first` to `last`.
struct Segment {
  fs::path path;
  RowNumber first;
  RowNumber last;
};

std::string segment_name(RowNumber first, RowNumber last) {
  return fmt::format("journal-{:012}-{:012}.sqlite", first.value(), last.value());
}

std::optional<Segment> segment_of(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view kStart = "journal-";
  constexpr std::string_view kEnd = ".sqlite";
  if (!name.starts_with(kStart) || !name.ends_with(kEnd)) return std::nullopt;
  if (name.size() < kStart.size() + kEnd.size()) return std::nullopt;
  const auto middle =
      std::string_view{name}.substr(kStart.size(), name.size() - kStart.size() - kEnd.size());
  const auto numbers = split(middle, '-');
  if (numbers.size() != 2) return std::nullopt;
  const auto first = parse_integer(numbers[0]);
  const auto last = parse_integer(numbers[1]);
  if (!first || !last || *first < 1 || *last < *first) return std::nullopt;
  Segment segment{path, RowNumber(static_cast<std::uint64_t>(*first)),
                  RowNumber(static_cast<std::uint64_t>(*last))};
  if (segment_name(segment.first, segment.last) != name) return std::nullopt;
  return segment;
}

// In order of their rows.
Result<std::vector<Segment>> list_segments(const fs::path& directory) {
  std::vector<Segment> segments;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (auto segment = segment_of(at->path())) segments.push_back(std::move(*segment));
  }
  if (error)
    return Error{fmt::format("{}: cannot be listed: {}", directory.string(), error.message())};
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  });
  return segments;
}

// The parser of JSON would refuse a longer row when it is read back.
Result<void> check_length(const std::string& body) {
  constexpr std::size_t kLongest = JsonLimits().bytes;
  if (body.size() <= kLongest) return {};
  return Error{fmt::format("a row of {} bytes is longer than {}, the limit of the journal",
                           body.size(), kLongest)};
}

bool there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

void close_file(JournalFile file) { const JournalFile closed = std::move(file); }

// Reads the rows after `after` in one file. The checksum of the row before the first one that is
// read comes from this file. If that row was read from another file (`reached`), the two checksums
// must be equal.
Result<ChainEnd> walk_file(JournalFile& file, RowNumber after,
                           const std::optional<ChainEnd>& reached, const JournalFile::Each& each) {
  ChainEnd from = file.about().before;
  if (after > from.number) {
    const auto checksum = file.checksum_of(after);
    if (!checksum) return checksum.error();
    if (!*checksum) return from;  // the file has no row that late
    from = {after, **checksum};
  }
  if (reached && from.number == reached->number && from.checksum != reached->checksum) {
    return Error{fmt::format("{}: row {} differs from the same row in the file before", file.path(),
                             from.number.value())};
  }
  auto walked = file.walk(from, each);
  if (!walked) return walked.error();
  if (!walked->broken.empty()) return Error{fmt::format("{}: {}", file.path(), walked->broken)};
  return walked->end;
}

Result<void> read_rows(const fs::path& directory, RowNumber after, const std::string& vfs,
                       const JournalFile::Each& each) {
  const auto open = [&](const fs::path& path) {
    std::string damage;
    return JournalFile::open(path.string(), Database::Mode::read, vfs, nullptr, damage);
  };
  // Opened before the segments are listed. A row that has been moved out of the live file is then
  // in a segment that exists already.
  auto live = open(directory / "journal.sqlite");
  if (!live) return live.error();
  const auto segments = list_segments(directory);
  if (!segments) return segments.error();
  std::optional<ChainEnd> end;
  const auto go_over = [&](JournalFile& file) -> Result<void> {
    const RowNumber begins_after = file.about().before.number;
    const RowNumber reached = end ? end->number : after;
    if (file.about().id != live->about().id)
      return Error{fmt::format("{}: belongs to another journal than the live file", file.path())};
    if (begins_after > reached) {
      return Error{fmt::format("{}: begins after row {}, but no file has row {}", file.path(),
                               begins_after.value(), reached.next().value())};
    }
    auto walked = walk_file(file, reached, end, each);
    if (!walked) return walked.error();
    if (!end || walked->number > end->number) end = *walked;
    return {};
  };
  for (const Segment& segment : *segments) {
    // The rows of a segment that begins later are still in the live file.
    if (segment.last <= after || segment.first > live->about().before.number) continue;
    auto file = open(segment.path);
    if (!file) return file.error();
    if (auto ok = go_over(*file); !ok) return ok;
  }
  return go_over(*live);
}

// The first of the rows that lead to the live file without a gap.
RowNumber first_row(const std::vector<Segment>& segments, const JournalFile::About& live) {
  const RowNumber first = live.before.number.next();
  return segments.empty() ? first : std::min(first, segments.front().first);
}

// When the last row of a segment was written.
Result<Time> end_of(const Segment& segment, const std::string& vfs) {
  std::string damage;
  auto file = JournalFile::open(segment.path.string(), Database::Mode::read, vfs, nullptr, damage);
  if (!file) return file.error();
  std::optional<Time> end;
  auto walked = walk_file(*file, RowNumber(segment.last.value() - 1), std::nullopt,
                          [&](RowNumber /*number*/, const JournalRow& row) -> Result<void> {
                            end = row.time;
                            return {};
                          });
  if (!walked) return walked.error();
  if (!end) return Error{fmt::format("{}: has no last row", segment.path.string())};
  return *end;
}

}  // namespace

// --- the open journal ---

struct Journal::Open {
  JournalOptions options;
  std::optional<JournalPlace> place;  // declared before the file, so that the file is closed first
  std::optional<JournalFile> file;    // none after check_place() has failed
  ChainEnd end;
  std::optional<RowNumber> newest_snapshot;
  bool failed_before = false;  // the last append() failed, but its rows may be stored
  std::string lost_rows_of;    // id of the journal, if the live file lacks rows that a segment has
  std::string out_of_place;    // why nothing can be stored any more; or empty

  std::optional<JournalSnapshot> snapshot;
  std::vector<std::string> dropped;

  [[nodiscard]] fs::path in(const std::string& name) const { return options.directory / name; }
  [[nodiscard]] fs::path live() const { return in("journal.sqlite"); }
  [[nodiscard]] fs::path live_log() const { return in("journal.sqlite-wal"); }
  // A file that is being written. It may be removed if its writer has died.
  [[nodiscard]] fs::path part() const { return in("journal.sqlite.part"); }
  // Complete and durable; it is about to become the live file.
  [[nodiscard]] fs::path successor() const { return in("journal.sqlite.new"); }

  Result<void> start();

  Result<void> make_directory() const;
  Result<void> sync_directory() const;
  Result<void> sync_file(const fs::path& path) const;
  Result<void> move(const fs::path& from, const fs::path& to) const;
  Result<void> remove(const fs::path& path) const;
  void before_write(std::string_view step) const {
    if (options.before_write) options.before_write(step);
  }

  Result<void> say(std::string sentence);
  Result<void> clean_up();
  Result<void> keep_unfinished_log();
  Result<void> look();
  Result<std::string> examine(JournalFile& opened);
  Result<void> repair(const std::string& why);
  Result<void> begin_anew(const std::vector<Segment>& segments, const std::string& id = {});
  Result<void> compare_with_segments();
  Result<std::string> compare(const Segment& segment);
  Result<void> set_aside(const Segment& segment, std::string_view why);
  Result<void> check_place();
  Result<void> write_anew();

  Result<JournalFile> create_part(const JournalFile::About& about) const;
  [[nodiscard]] Result<void> install(JournalFile finished) const;
  [[nodiscard]] Result<void> take_place() const;
  [[nodiscard]] fs::path free_name(const std::string& start, const std::string& end) const;
  static Result<std::string> copy_rows(JournalFile& from, RowNumber last, JournalFile& to,
                                       ChainEnd& end);
  Result<void> check_known(const JournalRow& row, RowNumber number) const;
  Result<std::optional<JournalFile::Snapshot>> choose_snapshot(JournalFile& from,
                                                               RowNumber& lost_before) const;
  Result<std::optional<JournalFile::Snapshot>> archived_snapshot(RowNumber at) const;
  Result<std::optional<RowNumber>> archived_beyond(const JournalFile& opened,
                                                   const ChainEnd& reached) const;
};

// --- files ---

Result<void> Journal::Open::make_directory() const {
  if (mkdir(options.directory.c_str(), 0700) != 0)
    return errno == EEXIST ? Result<void>() : failed(options.directory, "cannot be made");
  const fs::path above = options.directory / "..";
  const Descriptor parent(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || fsync(parent.get()) != 0) return failed(above, "cannot be made durable");
  return {};
}

Result<void> Journal::Open::sync_directory() const {
  before_write("sync directory");
  const Descriptor directory(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || fsync(directory.get()) != 0)
    return failed(options.directory, "cannot be made durable");
  return {};
}

Result<void> Journal::Open::sync_file(const fs::path& path) const {
  before_write("sync file");
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || fsync(file.get()) != 0) return failed(path, "cannot be made durable");
  return {};
}

Result<void> Journal::Open::move(const fs::path& from, const fs::path& to) const {
  before_write("move");
  if (rename(from.c_str(), to.c_str()) != 0) return failed(from, "cannot be moved");
  return {};
}

Result<void> Journal::Open::remove(const fs::path& path) const {
  before_write("remove");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return failed(path, "cannot be removed");
  return {};
}

// START-1END, or the next number for which no file exists.
fs::path Journal::Open::free_name(const std::string& start, const std::string& end) const {
  for (int n = 1;; ++n) {
    fs::path path = in(fmt::format("{}-{}{}", start, n, end));
    if (!there(path) && !there(path.string() + "-wal")) return path;
  }
}

Result<JournalFile> Journal::Open::create_part(const JournalFile::About& about) const {
  if (auto ok = remove(part()); !ok) return ok.error();
  before_write("create");
  // SQLite gives its log and its other files the permissions of this file.
  const Descriptor file(
      ::open(part().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly));
  if (!file) return failed(part(), "cannot be made");
  return JournalFile::create(part().string(), about, options.vfs, options.before_write);
}

// Replaces the live file by a finished one. The old live file, if there is one, is set aside.
Result<void> Journal::Open::install(JournalFile finished) const {
  close_file(std::move(finished));
  if (auto ok = sync_file(part()); !ok) return ok;
  if (auto ok = move(part(), successor()); !ok) return ok;
  if (auto ok = sync_directory(); !ok) return ok;
  return take_place();
}

// If the process dies from here on, the next start continues (clean_up). The log of the old file
// must be gone before the new file takes its name, because SQLite would apply the log to the new
// file. As long as the old file is there, it needs its log.
Result<void> Journal::Open::take_place() const {
  if (there(live())) {
    if (auto ok = move(live(), free_name("journal.sqlite.damaged", "")); !ok) return ok;
  }
  std::error_code error;
  if (there(live_log()) && fs::file_size(live_log(), error) == 0) {
    if (auto ok = remove(live_log()); !ok) return ok;
  } else if (there(live_log())) {
    // Under the name of its file, so that the two can still be read together.
    fs::path owner = free_name("journal.sqlite.damaged", "");
    for (int n = 1; there(in(fmt::format("journal.sqlite.damaged-{}", n))); ++n) {
      const fs::path one = in(fmt::format("journal.sqlite.damaged-{}", n));
      if (!there(one.string() + "-wal")) owner = one;
    }
    if (auto ok = move(live_log(), owner.string() + "-wal"); !ok) return ok;
  }
  for (const char* rest : {"journal.sqlite-shm", "journal.sqlite-journal"}) {
    if (auto ok = remove(in(rest)); !ok) return ok;
  }
  if (auto ok = sync_directory(); !ok) return ok;
  if (auto ok = move(successor(), live()); !ok) return ok;
  return sync_directory();
}

// --- opening ---

Result<Journal::Opened> Journal::open(const JournalOptions& options) {
  auto opening = std::make_unique<Open>();
  opening->options = options;
  if (auto ok = opening->start(); !ok) return ok.error();
  std::string dropped;
  for (const auto& sentence : opening->dropped) dropped += (dropped.empty() ? "" : " ") + sentence;
  auto snapshot = std::exchange(opening->snapshot, std::nullopt);
  return Opened{Journal(std::move(opening)), std::move(snapshot), std::move(dropped)};
}

Result<void> Journal::Open::start() {
  if (auto ok = make_directory(); !ok) return ok;
  auto claimed = JournalPlace::claim(options.directory);
  if (!claimed) return claimed.error();
  place = std::move(*claimed);
  if (there(live())) {
    if (auto ok = place->hold(live()); !ok) return ok;
  }
  if (auto ok = clean_up(); !ok) return ok;
  const auto segments = list_segments(options.directory);
  if (!segments) return segments.error();
  std::error_code error;
  if (!there(live())) {
    if (auto ok = begin_anew(*segments); !ok) return ok;
  } else if (fs::file_size(live(), error) == 0 && !error) {
    // SQLite would treat it as a new database and delete its log.
    if (auto ok = say(fmt::format("{} was empty.", live().string())); !ok) return ok;
    if (auto ok = begin_anew(*segments); !ok) return ok;
  } else if (auto ok = keep_unfinished_log(); !ok) {
    return ok;
  }
  if (auto ok = look(); !ok) return ok;
  if (auto ok = compare_with_segments(); !ok) return ok;
  if (auto ok = file->use_log(); !ok) return ok;
  place->watch_log(live_log());
  return {};
}

// Tells the caller of open(). The sentence is also stored durably for the operator, in case the
// process dies before the caller can report it.
Result<void> Journal::Open::say(std::string sentence) {
  before_write("say");
  const fs::path path = in("repairs.log");
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kOwnerOnly));
  const std::string line = sentence + "\n";
  if (!file || write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
      fsync(file.get()) != 0) {
    return failed(path, "cannot be written");
  }
  dropped.push_back(std::move(sentence));
  return {};
}

// Finishes or removes what an earlier process left when it died.
Result<void> Journal::Open::clean_up() {
  for (const char* rest : {"journal.sqlite.part", "journal.sqlite.part-journal"}) {
    if (!there(in(rest))) continue;
    if (auto ok = remove(in(rest)); !ok) return ok;
  }
  if (!there(successor())) return {};
  // If the old file still exists, the repair is repeated, so that it can report what it dropped.
  if (there(live())) return remove(successor());
  if (auto ok = take_place(); !ok) return ok;
  if (there(in("journal.sqlite.damaged-1"))) {
    dropped.push_back(
        fmt::format("A repair that had been interrupted was finished; what it could not read is in "
                    "the newest {}.",
                    in("journal.sqlite.damaged-*").string()));
  }
  return {};
}

// SQLite uses the log up to its last complete transaction and drops the rest. This keeps the rest.
Result<void> Journal::Open::keep_unfinished_log() {
  const auto tail = unfinished_wal(live_log().string());
  if (!tail) return tail.error();
  if (!*tail) return {};
  const fs::path kept = free_name("journal.unfinished", ".wal");
  before_write("keep log");
  const Descriptor from(::open(live_log().c_str(), O_RDONLY | O_CLOEXEC));
  const Descriptor to(::open(kept.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly));
  if (!from || !to) return failed(kept, "cannot be made");
  std::vector<char> bytes(std::size_t{1} << 16U);
  for (std::uint64_t at = (*tail)->from; at < (*tail)->to;) {
    const auto want = std::min<std::uint64_t>(bytes.size(), (*tail)->to - at);
    const auto got = pread(from.get(), bytes.data(), want, static_cast<off_t>(at));
    if (got <= 0) return failed(live_log(), "cannot be read");
    if (write(to.get(), bytes.data(), static_cast<std::size_t>(got)) != got)
      return failed(kept, "cannot be written");
    at += static_cast<std::uint64_t>(got);
  }
  if (fsync(to.get()) != 0) return failed(kept, "cannot be made durable");
  if (auto ok = sync_directory(); !ok) return ok;
  // Otherwise the next start would find again the bytes that later transactions do not overwrite.
  before_write("cut log");
  if (truncate(live_log().c_str(), static_cast<off_t>((*tail)->from)) != 0)
    return failed(live_log(), "cannot be cut");
  dropped.push_back(
      fmt::format("The last {} bytes of the log are no complete transaction, as after a crash; "
                  "they are kept in "
                  "{}.",
                  (*tail)->to - (*tail)->from, kept.string()));
  return {};
}

Result<void> Journal::Open::check_known(const JournalRow& row, RowNumber number) const {
  const auto known = options.types.find(row.type);
  if (known != options.types.end() && row.version <= known->second) return {};
  return Error{fmt::format(
      "{}: row {} is {} of version {}, which this version of rubato does not read; use the newer "
      "one that wrote it",
      live().string(), number.value(), base::quoted(row.type), row.version)};
}

// The newest snapshot that belongs to the rows of this file. If rows before it are missing, it can
// still be used, but those rows are lost. Then `lost_before` is its number.
Result<std::optional<JournalFile::Snapshot>> Journal::Open::choose_snapshot(
    JournalFile& from, RowNumber& lost_before) const {
  lost_before = RowNumber();
  auto found = from.snapshots();
  if (!found) return found.error();
  for (auto& one : *found) {
    const auto& [number, version, body] = one.content;
    if (version > options.snapshot_version) {
      return Error{fmt::format(
          "{}: the snapshot at row {} is of version {}, this version of rubato reads them up to "
          "{}; use the newer one that wrote it",
          from.path(), number.value(), version, options.snapshot_version)};
    }
    const auto row = from.checksum_of(number);
    if (!row) return row.error();
    if (*row && **row != one.row) continue;  // it belongs to other rows
    if (!*row && number < from.about().before.number) continue;
    if (!*row) lost_before = number;
    return std::optional(std::move(one));
  }
  auto archived = archived_snapshot(from.about().before.number);
  if (archived && *archived && (*archived)->row != from.about().before.checksum) archived->reset();
  return archived;
}

// Each segment ends with a snapshot.
Result<std::optional<JournalFile::Snapshot>> Journal::Open::archived_snapshot(RowNumber at) const {
  const auto segments = list_segments(options.directory);
  if (!segments) return segments.error();
  for (const Segment& segment : *segments) {
    if (segment.last != at) continue;
    std::string damage;
    auto opened = JournalFile::open(segment.path.string(), Database::Mode::read, options.vfs,
                                    nullptr, damage);
    if (!opened) continue;
    auto snapshots = opened->snapshots();
    if (!snapshots) continue;
    for (auto& one : *snapshots) {
      if (one.content.number == at && one.content.version <= options.snapshot_version)
        return std::optional(std::move(one));
    }
  }
  return std::optional<JournalFile::Snapshot>();
}

// Opens the live file, checks it from the newest snapshot on, and repairs it if necessary.
Result<void> Journal::Open::look() {
  // After a repair it may turn out that archived rows are missing, too.
  constexpr int kMostRepairs = 2;
  for (int repairs = 0;; ++repairs) {
    if (there(live())) {
      if (auto ok = place->hold(live()); !ok) return ok;
    }
    std::string damage;
    auto opened = JournalFile::open(live().string(), Database::Mode::write, options.vfs,
                                    options.before_write, damage);
    if (!opened && damage.empty()) return opened.error();
    if (opened) {
      auto found = examine(*opened);
      if (!found) return found.error();
      damage = std::move(*found);
      if (damage.empty()) {
        file = std::move(*opened);
        return {};
      }
      close_file(std::move(*opened));
    }
    if (repairs == kMostRepairs)
      return Error{fmt::format("{}: cannot be repaired: {}", live().string(), damage)};
    if (auto ok = repair(damage); !ok) return ok;
  }
}

// What is wrong with the file. If it is empty, the end of the rows and the snapshot are set.
Result<std::string> Journal::Open::examine(JournalFile& opened) {
  auto structure = opened.check_structure();
  if (!structure || !structure->empty()) return structure;
  RowNumber lost_before;
  auto chosen = choose_snapshot(opened, lost_before);
  if (!chosen) return chosen.error();
  if (lost_before != RowNumber())
    return fmt::format("rows up to {} are missing", lost_before.value());
  ChainEnd from = opened.about().before;
  if (*chosen) from = {(*chosen)->content.number, (*chosen)->row};
  auto walked = opened.walk(
      from, [&](RowNumber number, const JournalRow& row) { return check_known(row, number); });
  if (!walked) return walked.error();
  if (!walked->broken.empty()) return walked->broken;
  const auto beyond = archived_beyond(opened, walked->end);
  if (!beyond) return beyond.error();
  if (*beyond) {
    lost_rows_of = opened.about().id;
    return fmt::format("it ends with row {}, but rows up to {} were archived before",
                       walked->end.number.value(), (*beyond)->value());
  }
  end = walked->end;
  newest_snapshot.reset();
  snapshot.reset();
  if (*chosen) {
    newest_snapshot = (*chosen)->content.number;
    snapshot = std::move((*chosen)->content);
  }
  return std::string();
}

// Copies all rows that are verified into a new file, and sets the old file aside.
Result<void> Journal::Open::repair(const std::string& why) {
  const auto segments = list_segments(options.directory);
  if (!segments) return segments.error();
  if (!lost_rows_of.empty()) {
    if (auto ok = say(fmt::format("The journal has lost rows: {}.", why)); !ok) return ok;
    return begin_anew(*segments, std::exchange(lost_rows_of, {}));
  }
  std::string damage;
  auto old =
      JournalFile::open(live().string(), Database::Mode::write, options.vfs, nullptr, damage);
  if (!old && damage.empty()) return old.error();
  if (!old) {
    if (auto ok = say(fmt::format("The journal could not be read ({}).", damage)); !ok) return ok;
    return begin_anew(*segments);
  }
  RowNumber lost_before;
  auto chosen = choose_snapshot(*old, lost_before);
  if (!chosen) return chosen.error();

  // Copies from the first row on if all rows up to the snapshot are good, else from the snapshot
  // on.
  JournalFile::About about = old->about();
  auto good =
      old->walk(about.before, [](RowNumber, const JournalRow&) -> Result<void> { return {}; });
  if (!good) return good.error();
  std::string lost_early;
  if (*chosen && good->end.number < (*chosen)->content.number) {
    about.before = {(*chosen)->content.number, (*chosen)->row};
    lost_early = fmt::format(
        " Only the old file has rows {} to {}, as far as they can be read; the snapshot after them "
        "is good.",
        old->about().before.number.next().value(), (*chosen)->content.number.value());
  }
  auto copy = create_part(about);
  if (!copy) return copy.error();
  ChainEnd copied = about.before;
  if (auto ok = copy_rows(*old, RowNumber(~std::uint64_t{0}), *copy, copied); !ok)
    return ok.error();
  auto snapshots = old->snapshots();
  if (!snapshots) return snapshots.error();
  for (const auto& one : *snapshots) {
    if (one.content.number > copied.number) continue;
    if (auto ok = copy->put_snapshot(one); !ok) return ok;
  }
  close_file(std::move(*old));
  const fs::path aside = free_name("journal.sqlite.damaged", "");
  const std::string which =
      good->last_there > copied.number
          ? fmt::format("rows {} to {}", copied.number.next().value(), good->last_there.value())
          : fmt::format("anything after row {}", copied.number.value());
  if (auto ok = say(fmt::format(
          "The journal was damaged ({}) and continues after row {}; {} could not be used; the old "
          "file is kept as {}.{}",
          why, copied.number.value(), which, aside.string(), lost_early));
      !ok) {
    return ok;
  }
  return install(std::move(*copy));
}

// Appends the verified rows of `from` that follow `end` to `to`, up to number `last`.
Result<std::string> Journal::Open::copy_rows(JournalFile& from, RowNumber last, JournalFile& to,
                                             ChainEnd& end) {
  constexpr std::size_t kAtOnce = std::size_t{16} << 20U;
  std::vector<JournalRow> rows;
  std::size_t bytes = 0;
  const auto store = [&]() -> Result<void> {
    if (rows.empty()) return {};
    auto ok = to.append(rows, end, false);
    rows.clear();
    bytes = 0;
    return ok;
  };
  auto walked = from.walk(end, [&](RowNumber number, const JournalRow& row) -> Result<void> {
    if (number > last) return {};
    rows.push_back(row);
    bytes += row.body.size() + 100;
    return bytes < kAtOnce ? Result<void>() : store();
  });
  if (!walked) return walked.error();
  if (auto ok = store(); !ok) return ok.error();
  return walked->broken;
}

// Makes a live file without rows, after the last segment that can be read. With `id`, only segments
// of that journal count.
Result<void> Journal::Open::begin_anew(const std::vector<Segment>& segments,
                                       const std::string& id) {
  JournalFile::About about;
  std::optional<JournalFile::Snapshot> at_end;
  for (auto segment = segments.rbegin(); segment != segments.rend() && about.id.empty();
       ++segment) {
    std::string damage;
    auto opened = JournalFile::open(segment->path.string(), Database::Mode::read, options.vfs,
                                    nullptr, damage);
    if (!opened && damage.empty()) return opened.error();
    if (!opened || (!id.empty() && opened->about().id != id)) continue;
    const auto checksum = opened->checksum_of(segment->last);
    if (!checksum) return checksum.error();
    if (!*checksum) continue;
    about = {opened->about().id, {segment->last, **checksum}};
    auto archived = archived_snapshot(segment->last);
    if (!archived) return archived.error();
    at_end = std::move(*archived);
  }
  const bool continues = !about.id.empty();
  if (!continues) {
    about.id = wire::random_hex(kIdBytes);
    // So no row of one journal fits into another.
    about.before.checksum = Digester().add(about.id).finish();
  }
  auto fresh = create_part(about);
  if (!fresh) return fresh.error();
  if (at_end && at_end->row == about.before.checksum) {
    if (auto ok = fresh->put_snapshot(*at_end); !ok) return ok;
  }
  std::string lost;
  if (there(live()) || there(live_log())) {
    lost = fmt::format("The old file is kept as {}. ",
                       free_name("journal.sqlite.damaged", "").string());
  }
  if (!lost.empty() || !segments.empty()) {
    if (auto ok =
            say(fmt::format("{}A new live file begins after row {}; later rows are lost unless "
                            "they are in a file that was kept.",
                            lost, about.before.number.value()));
        !ok) {
      return ok;
    }
  }
  return install(std::move(*fresh));
}

// --- segments beside the live file ---

// A segment may have rows that the live file has, too, or should have had. There are three reasons:
// the process died before it removed the archived rows from the live file; the live file has lost
// rows since; or the segment belongs to another history. Afterwards no segment has a row that the
// live file has, too.
Result<void> Journal::Open::compare_with_segments() {
  const auto segments = list_segments(options.directory);
  if (!segments) return segments.error();
  for (const Segment& segment : *segments) {
    if (segment.last <= file->about().before.number) continue;
    const auto wrong = compare(segment);
    if (!wrong) return wrong.error();
    if (wrong->empty()) continue;
    if (auto ok = set_aside(segment, *wrong); !ok) return ok;
  }
  return {};
}

// Why the segment does not belong here. If it does, the result is empty, and the live file no
// longer has the rows of the segment.
Result<std::string> Journal::Open::compare(const Segment& segment) {
  std::string damage;
  auto opened =
      JournalFile::open(segment.path.string(), Database::Mode::read, options.vfs, nullptr, damage);
  if (!opened && damage.empty()) return opened.error();
  if (!opened) return std::string("it cannot be read");
  if (opened->about().id != file->about().id) return std::string("it is of another journal");
  const auto archived = opened->checksum_of(segment.last);
  if (!archived) return archived.error();
  const auto here = file->checksum_of(segment.last);
  if (!here) return here.error();
  if (!*archived || !*here || **archived != **here)
    return std::string("its rows are not those of the live file");
  if (auto ok = file->forget_up_to({segment.last, **here}); !ok) return ok.error();
  return std::string();
}

Result<void> Journal::Open::set_aside(const Segment& segment, std::string_view why) {
  const fs::path aside = free_name(segment.path.filename().string() + ".damaged", "");
  if (auto ok = say(fmt::format("{} was set aside as {}, because {}.", segment.path.string(),
                                aside.string(), why));
      !ok) {
    return ok;
  }
  if (auto ok = move(segment.path, aside); !ok) return ok;
  return sync_directory();
}

// The last row of a segment that continues the rows of `opened` beyond their end, `reached`.
Result<std::optional<RowNumber>> Journal::Open::archived_beyond(const JournalFile& opened,
                                                                const ChainEnd& reached) const {
  const auto segments = list_segments(options.directory);
  if (!segments) return segments.error();
  std::optional<RowNumber> beyond;
  for (const Segment& segment : *segments) {
    if (segment.last <= reached.number) continue;
    std::string damage;
    auto archived = JournalFile::open(segment.path.string(), Database::Mode::read, options.vfs,
                                      nullptr, damage);
    if (!archived && damage.empty()) return archived.error();
    if (!archived || archived->about().id != opened.about().id) continue;
    // A segment that begins later has the same journal id. A segment that has our last row must
    // have the same checksum for it. Otherwise it belongs to another history.
    if (archived->about().before.number <= reached.number) {
      const auto same = archived->checksum_of(reached.number);
      if (!same) return same.error();
      if (!*same || **same != reached.checksum) continue;
    }
    const auto last = archived->checksum_of(segment.last);
    if (!last) return last.error();
    if (*last) beyond = segment.last;
  }
  return beyond;
}

// --- files that were deleted or moved while the journal is open ---

Result<void> Journal::Open::check_place() {
  if (out_of_place.empty()) {
    auto ok = place->check();
    if (ok) return ok;
    out_of_place = ok.error().message;
    if (!place->directory_moved()) {
      const auto written = write_anew();
      out_of_place += written ? fmt::format(
                                    "; its content was written to {} again, so restart "
                                    "the daemon",
                                    live().string())
                              : fmt::format("; its content could not be written again ({})",
                                            written.error().message);
    }
    file.reset();
  }
  return Error{out_of_place};
}

// An open file can still be read after its name was removed.
Result<void> Journal::Open::write_anew() {
  auto copy = create_part(file->about());
  if (!copy) return copy.error();
  ChainEnd copied = file->about().before;
  const auto broken = copy_rows(*file, end.number, *copy, copied);
  if (!broken) return broken.error();
  if (copied.number != end.number) return Error{*broken};
  auto snapshots = file->snapshots();
  if (!snapshots) return snapshots.error();
  for (const auto& one : *snapshots) {
    if (auto ok = copy->put_snapshot(one); !ok) return ok;
  }
  file.reset();
  return install(std::move(*copy));
}

// --- the journal ---

Journal::Journal(std::unique_ptr<Open> open) : open_(std::move(open)) {}
Journal::~Journal() = default;
Journal::Journal(Journal&&) noexcept = default;
Journal& Journal::operator=(Journal&&) noexcept = default;

RowNumber Journal::last() const { return open_->end.number; }

Result<RowNumber> Journal::append(const std::vector<JournalRow>& rows) {
  for (const JournalRow& row : rows) {
    const auto known = open_->options.types.find(row.type);
    CHECK(known != open_->options.types.end() && row.version <= known->second);
    if (auto ok = check_length(row.body); !ok) return ok.error();
  }
  if (rows.empty()) return last();
  if (auto ok = open_->check_place(); !ok) return ok.error();
  auto ok = open_->file->append(rows, open_->end, open_->failed_before);
  open_->failed_before = !ok;
  if (!ok) return ok.error();
  open_->place->watch_log(open_->live_log());
  return last();
}

Result<void> Journal::write_snapshot(const JournalSnapshot& snapshot) {
  CHECK(snapshot.number <= last() && snapshot.version <= open_->options.snapshot_version);
  if (auto ok = check_length(snapshot.body); !ok) return ok;
  if (auto ok = open_->check_place(); !ok) return ok;
  const auto row = open_->file->checksum_of(snapshot.number);
  if (!row) return row.error();
  if (!*row) {
    return Error{fmt::format("{}: row {} is archived, too late for a snapshot of it",
                             open_->live().string(), snapshot.number.value())};
  }
  auto ok = open_->file->put_snapshot({snapshot, **row});
  if (ok && (!open_->newest_snapshot || *open_->newest_snapshot < snapshot.number))
    open_->newest_snapshot = snapshot.number;
  return ok;
}

Result<void> Journal::compact() {
  if (auto ok = open_->check_place(); !ok) return ok;
  JournalFile& live = *open_->file;
  const ChainEnd before = live.about().before;
  if (!open_->newest_snapshot || *open_->newest_snapshot <= before.number) return {};
  auto snapshots = live.snapshots();
  if (!snapshots) return snapshots.error();
  if (snapshots->empty() || snapshots->front().content.number != *open_->newest_snapshot) {
    return Error{fmt::format("{}: nothing was archived, because its newest snapshot is damaged",
                             open_->live().string())};
  }
  const JournalFile::Snapshot& at = snapshots->front();
  const auto segments = list_segments(open_->options.directory);
  if (!segments) return segments.error();
  for (const Segment& other : *segments) {
    if (other.last <= before.number) continue;
    return Error{fmt::format("nothing was archived, because {} has rows of the live file already",
                             other.path.string())};
  }

  auto segment = open_->create_part({live.about().id, before});
  if (!segment) return segment.error();
  ChainEnd copied = before;
  const auto broken = Open::copy_rows(live, at.content.number, *segment, copied);
  if (!broken) return broken.error();
  if (copied.number != at.content.number || copied.checksum != at.row) {
    return Error{fmt::format("{}: nothing was archived, because {}", open_->live().string(),
                             broken->empty() ? "its rows do not lead to its snapshot" : *broken)};
  }
  if (auto ok = segment->put_snapshot(at); !ok) return ok;
  close_file(std::move(*segment));
  if (auto ok = open_->sync_file(open_->part()); !ok) return ok;
  const fs::path name = open_->in(segment_name(before.number.next(), copied.number));
  if (auto ok = open_->move(open_->part(), name); !ok) return ok;
  if (auto ok = open_->sync_directory(); !ok) return ok;
  return live.forget_up_to(copied);
}

Result<void> Journal::check_place() { return open_->check_place(); }

Result<void> Journal::prune(const std::function<bool(RowNumber last, Time at)>& old) {
  if (auto ok = open_->check_place(); !ok) return ok;
  const auto segments = list_segments(open_->options.directory);
  if (!segments) return segments.error();
  bool removed = false;
  for (std::size_t i = 0; i + 1 < segments->size(); ++i) {
    const Segment& segment = (*segments)[i];
    const auto end = end_of(segment, open_->options.vfs);
    if (!end) return end.error();
    if (!old(segment.last, *end)) break;
    if (auto ok = open_->remove(segment.path); !ok) return ok;
    removed = true;
  }
  return removed ? open_->sync_directory() : Result<void>();
}

Result<RowNumber> Journal::first() const {
  if (auto ok = open_->check_place(); !ok) return ok.error();
  const auto segments = list_segments(open_->options.directory);
  if (!segments) return segments.error();
  return first_row(*segments, open_->file->about());
}

Result<void> Journal::read(RowNumber after, const JournalFile::Each& each) const {
  if (auto ok = open_->check_place(); !ok) return ok;
  return read_rows(open_->options.directory, after, open_->options.vfs, each);
}

Result<JournalExtent> look_at_journal(const std::filesystem::path& directory) {
  const auto open = [](const fs::path& path) {
    std::string damage;
    return JournalFile::open(path.string(), Database::Mode::read, "", nullptr, damage);
  };
  // Before the segments, as in read_rows().
  auto live = open(directory / "journal.sqlite");
  if (!live) return live.error();
  const auto segments = list_segments(directory);
  if (!segments) return segments.error();
  JournalExtent extent;
  extent.first = first_row(*segments, live->about());
  auto last = live->last();
  if (!last) return last.error();
  extent.last = *last;
  if (extent.first == RowNumber(1)) return extent;
  std::optional<JournalFile> oldest;
  if (!segments->empty()) {
    auto segment = open(segments->front().path);
    if (!segment) return segment.error();
    oldest = std::move(*segment);
  }
  auto snapshots = (oldest ? *oldest : *live).snapshots();
  if (!snapshots) return snapshots.error();
  if (!snapshots->empty()) extent.begin = std::move(snapshots->back().content);
  return extent;
}

Result<void> read_journal(const std::filesystem::path& directory, RowNumber after,
                          const JournalFile::Each& each) {
  return read_rows(directory, after, "", each);
}

}  // namespace rubato::journal

#include "cmd/policy_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <span>
#include <string_view>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/sim/foreign_policy.h"
#include "rubato/wire/socket.h"

namespace rubato::cmd {
namespace {

constexpr std::int64_t kMemory = 1;
constexpr std::int64_t kDecide = 2;
constexpr std::size_t kLongestHello = 4096;
constexpr std::size_t kFewestCells = 1U << 13U;

std::string last_error() { return std::strerror(errno); }  // NOLINT(concurrency-mt-unsafe)

// Memory that another process maps, too.
class SharedCells {
 public:
  SharedCells() = default;
  SharedCells(const SharedCells&) = delete;
  SharedCells& operator=(const SharedCells&) = delete;
  ~SharedCells() { unmap(); }

  [[nodiscard]] std::span<std::int64_t> span() const { return cells_; }

  // Returns its descriptor, for the other process.
  [[nodiscard]] Result<wire::Fd> make(std::size_t count) {
    unmap();
    const std::size_t bytes = count * sizeof(std::int64_t);
    wire::Fd file(::memfd_create("rubato-policy", MFD_CLOEXEC));
    if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
      return Error{fmt::format("{} bytes of shared memory: {}", bytes, last_error())};
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
      return Error{fmt::format("{} bytes of shared memory: {}", bytes, last_error())};
    cells_ = {static_cast<std::int64_t*>(memory), count};
    return file;
  }

 private:
  void unmap() {
    if (!cells_.empty()) ::munmap(cells_.data(), cells_.size_bytes());
    cells_ = {};
  }

  std::span<std::int64_t> cells_;
};

class SocketChannel final : public ForeignChannel {
 public:
  SocketChannel(wire::Fd socket, std::string path)
      : socket_(std::move(socket)), path_(std::move(path)) {}

  [[nodiscard]] Result<void> send(std::span<const std::byte> message, int descriptor = -1) {
    iovec part{const_cast<std::byte*>(message.data()),  // NOLINT: sendmsg() only reads it
               message.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    if (descriptor >= 0) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    }
    ssize_t sent = 0;
    do {
      sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? gone() : Result<void>();
  }

  // The length of the message.
  [[nodiscard]] Result<std::size_t> receive(std::span<std::byte> into) {
    ssize_t received = 0;
    do {
      received = ::recv(socket_.get(), into.data(), into.size(), 0);
    } while (received < 0 && errno == EINTR);
    if (received <= 0) return gone().error();
    return static_cast<std::size_t>(received);
  }

  [[nodiscard]] Result<std::span<std::int64_t>> cells(std::size_t count) override {
    if (memory_.span().size() >= count) return memory_.span();
    const auto file = memory_.make(std::max(2 * count, kFewestCells));
    if (!file) return file.error();
    const std::array<std::int64_t, 2> message = {
        kMemory, static_cast<std::int64_t>(memory_.span().size_bytes())};
    if (auto sent = send(std::as_bytes(std::span(message)), file->get()); !sent)
      return sent.error();
    return memory_.span();
  }

  [[nodiscard]] Result<void> ask() override {
    std::array<std::int64_t, 2> message = {kDecide, 0};
    if (auto sent = send(std::as_bytes(std::span(message))); !sent) return sent;
    const auto received = receive(std::as_writable_bytes(std::span(message)));
    if (!received) return received.error();
    if (*received != sizeof(message) || message[0] != kDecide)
      return Error{
          fmt::format("the policy at {} answered with something else", base::quoted(path_))};
    return {};
  }

 private:
  [[nodiscard]] Result<void> gone() const {
    return Error{fmt::format("the policy at {} has closed its connection", base::quoted(path_))};
  }

  wire::Fd socket_;
  std::string path_;
  SharedCells memory_;
};

struct Connected {
  std::unique_ptr<SocketChannel> channel;
  std::string name;
  bool elastic = false;
  bool one_type = false;
};

Result<Connected> connect_policy(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return Error{fmt::format("{} is too long for the path of a socket", base::quoted(path))};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  wire::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Error{fmt::format("no policy answers at {}: {}", base::quoted(path), last_error())};
  }
  Connected connected{std::make_unique<SocketChannel>(std::move(socket), path), "", false, false};
  Json columns = Json::array();
  for (const auto& column : foreign_job_columns())
    columns.push_back({column.name, column.whole ? "int64" : "float64"});
  const std::string hello = Json{{"columns", columns}}.dump();
  if (auto sent = connected.channel->send(std::as_bytes(std::span(hello))); !sent)
    return sent.error();
  std::array<char, kLongestHello> text{};
  const auto length = connected.channel->receive(std::as_writable_bytes(std::span(text)));
  if (!length) return length.error();
  const auto answer = parse_json(std::string_view(text.data(), *length), path);
  if (!answer) return answer.error();
  try {
    answer->at("name").get_to(connected.name);
    answer->at("elastic").get_to(connected.elastic);
    answer->at("one_type").get_to(connected.one_type);
  } catch (const Json::exception& error) {
    return Error{fmt::format("the policy at {} does not say what it is: {}", base::quoted(path),
                             error.what())};
  }
  return connected;
}

}  // namespace

Result<PolicyEntry> policy_at_socket(const std::string& path) {
  const auto connected = connect_policy(path);
  if (!connected) return connected.error();
  PolicyEntry entry;
  entry.name = connected->name;
  entry.summary = "decided by another process";
  entry.knows = "everything";
  entry.not_live = "it runs in the simulator only";
  entry.elastic = connected->elastic;
  entry.one_type = connected->one_type;
  entry.work_conserving = false;
  entry.make = [path](const KeyValues&, const PolicyInputs&) -> MadePolicy {
    auto another = connect_policy(path);
    if (!another) return another.error();
    return std::unique_ptr<Policy>(
        std::make_unique<ForeignPolicy>(std::move(another->channel), another->elastic));
  };
  return entry;
}

}  // namespace rubato::cmd

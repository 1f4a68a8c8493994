// An assertion of Beast 1.74 is wrong about chunked bodies that arrive in pieces; the HTTP server
// is compiled without it, too (CMakeLists.txt).
#define BOOST_DISABLE_ASSERTS

#include "rubato/engine/slurm_rest.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sys/socket.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/engine/slurm_json.h"
#include "rubato/wire/socket.h"

namespace rubato::engine {
namespace {

using RestClock = std::chrono::steady_clock;

constexpr int kNotFound = 404;
// The text of a reply if slurmrestd does not know what it was asked for.
constexpr std::string_view kUnknownPath = "unknown path";

// "SLURM_JWT=...", as scontrol prints it, or the token alone.
Result<std::string> read_token(const std::string& path) {
  constexpr std::string_view kVariable = "SLURM_JWT=";
  constexpr std::size_t kMost = 16 << 10;
  std::ifstream file(path, std::ios::binary);
  std::string content(kMost, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  std::string_view token = trim(content);
  if (token.starts_with(kVariable)) token.remove_prefix(kVariable.size());
  const bool plain =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (token.empty() || !plain) {
    return Error{
        fmt::format("--slurm-token {}: cannot read one token from this file", base::quoted(path))};
  }
  return std::string(token);
}

// One request on a connection of its own.
class RestCall final : public SlurmCall {
 public:
  RestCall(wire::Fd connection, std::string request, std::chrono::milliseconds patience)
      : connection_(std::move(connection)),
        request_(std::move(request)),
        patience_(patience),
        deadline_(RestClock::now() + patience) {
    answer_.body_limit(kMostSlurmAnswer);
    answer_.eager(true);
  }

  std::optional<SlurmReply> look() override {
    const bool more = send() && receive();
    if (answer_.is_done()) return reply();
    if (!more) return lost("slurmrestd has ended the connection without an answer");
    if (RestClock::now() < deadline_) return std::nullopt;
    return lost(fmt::format("slurmrestd has not answered for {} s",
                            std::chrono::duration<double>(patience_).count()));
  }

 private:
  static SlurmReply lost(std::string why) { return {false, {}, std::move(why), true}; }

  // False if the connection is of no use.
  bool send() {
    while (sent_ < request_.size()) {
      const ssize_t size =
          ::send(connection_.get(), request_.data() + sent_, request_.size() - sent_, MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN;
      sent_ += static_cast<std::size_t>(size);
    }
    return true;
  }

  bool receive() {
    std::array<char, 64 << 10> bytes;
    while (!answer_.is_done()) {
      const ssize_t size = ::recv(connection_.get(), bytes.data(), bytes.size(), 0);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN;
      boost::beast::error_code bad;
      if (size == 0) {
        if (answer_.got_some()) answer_.put_eof(bad);
        return false;
      }
      waiting_.append(bytes.data(), static_cast<std::size_t>(size));
      const std::size_t used =
          answer_.put(boost::asio::const_buffer(waiting_.data(), waiting_.size()), bad);
      waiting_.erase(0, used);
      if (bad && bad != boost::beast::http::error::need_more) return false;
    }
    return true;
  }

  SlurmReply reply() {
    const int status = answer_.get().result_int();
    std::string& body = answer_.get().body();
    const std::string why = read_slurm_errors(body);
    // With a number, Slurm has taken the job, and the error only says why it waits.
    const bool taken = !read_submitted_slurm_job(body).empty();
    if (taken || (status == 200 && why.empty())) return {true, std::move(body), {}, false};
    // Without words of Slurm, nobody knows what was done.
    return {false, status == kNotFound && why.empty() ? std::string(kUnknownPath) : "",
            why.empty() ? fmt::format("slurmrestd answers with {}: {}", status,
                                      base::quoted(body.substr(0, 200)))
                        : why,
            why.empty() || slurm_answer_lost(why)};
  }

  wire::Fd connection_;
  std::string request_;
  std::size_t sent_ = 0;
  std::string waiting_;  // received, and not taken by the parser
  boost::beast::http::response_parser<boost::beast::http::string_body> answer_;
  std::chrono::milliseconds patience_;
  RestClock::time_point deadline_;
};

// Asks for older versions of the interface until slurmrestd knows one.
class FirstCall final : public SlurmCall {
 public:
  FirstCall(SlurmRest& rest, std::unique_ptr<SlurmCall> call)
      : rest_(rest), call_(std::move(call)) {}

  std::optional<SlurmReply> look() override {
    auto reply = call_->look();
    if (!reply || reply->good || reply->text != kUnknownPath) return reply;
    if (!rest_.try_older_version())
      return SlurmReply{
          false, {}, "slurmrestd knows no version of its interface that Rubato knows", true};
    auto next = rest_.ask_partitions_once();
    if (!next) return SlurmReply{false, {}, next.error().message, true};
    call_ = std::move(*next);
    return std::nullopt;
  }

 private:
  SlurmRest& rest_;
  std::unique_ptr<SlurmCall> call_;
};

}  // namespace

Result<void> SlurmRest::can_submit(const ShareSpec& share) const {
  if (!options_.token.empty() || share.user.empty() || share.user == own_slurm_user()) return {};
  return Error{fmt::format(
      "slurmrestd without a token submits only jobs of {}, not of {}; give --slurm-token FILE",
      own_slurm_user(), base::quoted(share.user))};
}

std::string SlurmRest::path(const std::string& what) const {
  return fmt::format("/slurm/v0.0.{}/{}", kSlurmRestVersions.at(version_), what);
}

SlurmWay::Begun SlurmRest::start(const std::string& method, const std::string& path,
                                 const std::string& user, const std::string& body) const {
  std::string headers;
  if (!options_.token.empty()) {
    const auto token = read_token(options_.token);
    if (!token) return token.error();
    headers = fmt::format("X-SLURM-USER-NAME: {}\r\nX-SLURM-USER-TOKEN: {}\r\n",
                          user.empty() ? own_slurm_user() : user, *token);
  }
  auto connection = wire::connect_to(options_.rest);
  if (!connection) {
    return Error{fmt::format("slurmrestd cannot be reached at {}: {}", options_.rest,
                             connection.error().message)};
  }
  std::string request = fmt::format(
      "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n"
      "{}{}Content-Length: {}\r\n\r\n{}",
      method, path, headers, body.empty() ? "" : "Content-Type: application/json\r\n", body.size(),
      body);
  return std::unique_ptr<SlurmCall>(
      std::make_unique<RestCall>(std::move(*connection), std::move(request), options_.patience));
}

SlurmWay::Begun SlurmRest::submit(const SlurmRequest& request) {
  std::optional<launch::RunAs> user;
  if (!request.share.user.empty()) {
    auto known = launch::look_up_user(request.share.user);
    if (!known) return known.error();
    user = std::move(*known);
  }
  const auto body = slurm_job_json(request, slurm_environment(user, options_.configuration),
                                   options_, kSlurmRestVersions.at(version_));
  if (!body) return body.error();
  return start("POST", path("job/submit"), request.share.user, *body);
}

std::string SlurmRest::submitted(const std::string& text) const {
  return read_submitted_slurm_job(text);
}

SlurmWay::Begun SlurmRest::cancel(const std::vector<std::string>& numbers) {
  return start("DELETE", path("job/" + numbers.front()), "", "");
}

SlurmWay::Begun SlurmRest::ask_partitions() {
  auto call = ask_partitions_once();
  if (!call) return call.error();
  return std::unique_ptr<SlurmCall>(std::make_unique<FirstCall>(*this, std::move(*call)));
}

SlurmWay::Begun SlurmRest::ask_partitions_once() {
  return start("GET", path("partitions"), "", "");
}

bool SlurmRest::try_older_version() {
  version_ = (version_ + 1) % kSlurmRestVersions.size();
  return version_ != 0;
}

SlurmWay::Begun SlurmRest::ask_nodes() { return start("GET", path("nodes"), "", ""); }

SlurmWay::Begun SlurmRest::ask_jobs() { return start("GET", path("jobs"), "", ""); }

Result<std::vector<SlurmPartition>> SlurmRest::partitions(const std::string& text) {
  return read_slurm_partitions(text);
}

Result<std::vector<SlurmNode>> SlurmRest::nodes(const std::string& text) {
  return read_slurm_nodes(text);
}

Result<std::vector<SlurmJob>> SlurmRest::jobs(const std::string& text) {
  const auto now = std::chrono::floor<WallTime::duration>(std::chrono::system_clock::now());
  auto jobs = read_slurm_jobs(text, options_.prefix, now);
  // A daemon of an ordinary user has only jobs of this user.
  if (jobs && ::geteuid() != 0)
    std::erase_if(*jobs, [me = own_slurm_user()](const SlurmJob& job) { return job.user != me; });
  return jobs;
}

}  // namespace rubato::engine

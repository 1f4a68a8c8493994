#include "rubato/http/answer_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::http {
namespace {

namespace beast_http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;

// A server may send some interim answers before its answer, but not without end.
constexpr int kMostInterim = 16;

std::string in_lower_case(string_view text) {
  std::string result(text.data(), text.size());
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

}  // namespace

// Beast calls these virtual functions with what it has parsed.
class AnswerReader::Parser final : public beast_http::basic_parser<false> {
 public:
  Parser() {
    header_limit(static_cast<std::uint32_t>(kLargestHead) + 4);
    body_limit(std::numeric_limits<std::uint64_t>::max());  // the caller limits the body
  }

  HttpReply reply;
  const Each* each = nullptr;  // takes the body
  bool stopped = false;

 private:
  void on_request_impl(beast_http::verb /*verb*/, string_view /*method*/, string_view /*target*/,
                       int /*version*/, error_code& /*error*/) override {}
  void on_response_impl(int status, string_view /*reason*/, int /*version*/,
                        error_code& error) override {
    reply.status = status;
    if (status < 100 || status > 599) error = beast_http::error::bad_status;
  }
  void on_field_impl(beast_http::field /*field*/, string_view name, string_view value,
                     error_code& /*error*/) override {
    // Fields that follow a chunked body (trailers) are ignored.
    if (!is_header_done())
      reply.headers[in_lower_case(name)] = std::string(value.data(), value.size());
  }
  void on_header_impl(error_code& error) override {
    // Beast would read an encoding that it does not know as a body without a length.
    if (reply.headers.count("transfer-encoding") > 0 && !chunked())
      error = beast_http::error::bad_transfer_encoding;
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/,
                         error_code& /*error*/) override {}
  std::size_t on_body_impl(string_view bytes, error_code& error) override {
    pass(bytes, error);
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t /*size*/, string_view /*extensions*/,
                            error_code& /*error*/) override {}
  std::size_t on_chunk_body_impl(std::uint64_t /*left*/, string_view bytes,
                                 error_code& error) override {
    pass(bytes, error);
    return bytes.size();
  }
  void on_finish_impl(error_code& /*error*/) override {}

  void pass(string_view bytes, error_code& error) {
    if (bytes.empty() || (*each)({bytes.data(), bytes.size()})) return;
    stopped = true;
    error = make_error_code(boost::system::errc::operation_canceled);
  }
};

struct AnswerReader::Content {
  std::optional<Parser> parser{std::in_place};
  std::string input;  // what the parser has not consumed yet
  int interim = 0;    // answers with a status of 1xx
  bool ended = false;
  std::string problem;
};

AnswerReader::AnswerReader() : content_(std::make_unique<Content>()) {}
AnswerReader::~AnswerReader() = default;
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&&) noexcept = default;

void AnswerReader::give(std::string_view bytes) { content_->input += bytes; }
void AnswerReader::give_end() { content_->ended = true; }
const HttpReply& AnswerReader::head() const { return content_->parser->reply; }
const std::string& AnswerReader::problem() const { return content_->problem; }

AnswerReader::State AnswerReader::malformed(std::string problem) {
  content_->problem = std::move(problem);
  return State::malformed;
}

// Parses what is here: up to the end of the head, or as much of the body as there is.
AnswerReader::State AnswerReader::advance() {
  Content& content = *content_;
  Parser& parser = *content.parser;
  if (parser.stopped) return State::stopped;
  if (!content.problem.empty()) return State::malformed;
  error_code error;
  const std::size_t used =
      parser.put(boost::asio::const_buffer(content.input.data(), content.input.size()), error);
  content.input.erase(0, used);
  if (parser.stopped) return State::stopped;
  const bool hungry = error == beast_http::error::need_more;
  if (error && !hungry) return malformed(fmt::format("it is no HTTP: {}", error.message()));
  if (hungry && content.input.size() > kLargestHead) return malformed("a line is too long");
  return parser.is_done() ? State::complete : State::hungry;
}

// Parses nothing until the whole head is here, so that it does not matter where the bytes were cut.
AnswerReader::State AnswerReader::find_head() {
  static constexpr std::string_view kBegin = "HTTP/1.";
  static constexpr std::string_view kEnd = "\r\n\r\n";
  const std::string_view input = content_->input;
  if (input.substr(0, kBegin.size()) != kBegin.substr(0, input.size()))
    return malformed("it is no HTTP");
  const auto end = input.find(kEnd);
  if (std::min(end, input.size()) > kLargestHead) return malformed("its head is too long");
  if (end != std::string_view::npos) return State::complete;
  return content_->ended ? State::cut_off : State::hungry;
}

AnswerReader::State AnswerReader::read_head() {
  Content& content = *content_;
  if (!content.problem.empty()) return State::malformed;
  for (;;) {
    if (const State found = find_head(); found != State::complete) return found;
    if (const State state = advance(); state == State::malformed) return state;
    if (!content.parser->is_header_done()) return malformed("it is no HTTP: its head has no end");
    if (content.parser->reply.status >= 200) return State::complete;
    if (++content.interim > kMostInterim)
      return malformed("it begins with too many interim answers");
    content.parser.emplace();
  }
}

AnswerReader::State AnswerReader::read_body(const Each& each) {
  Parser& parser = *content_->parser;
  CHECK(parser.is_header_done());
  if (parser.is_done()) return State::complete;
  parser.each = &each;
  parser.eager(true);
  const State state = advance();
  if (state != State::hungry || !content_->ended) return state;
  // Without a length, the body ends when the connection ends.
  error_code error;
  parser.put_eof(error);
  return error ? State::cut_off : State::complete;
}

}  // namespace rubato::http

// Turns the bytes of an HTTP answer into its head and the pieces of its body. It does no I/O. The
// bytes may be cut anywhere. Boost.Beast parses them. The reader is strict and limits sizes,
// because the other side may not be a daemon of Rubato.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace rubato::http {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // empty if it was streamed
  [[nodiscard]] bool good() const { return status >= 200 && status < 300; }
};

class AnswerReader {
 public:
  // The limit for all bytes that are not body: the head, and each line between the chunks of a
  // body.
  static constexpr std::size_t kLargestHead = std::size_t{64} << 10U;

  enum class State {
    hungry,     // it needs more bytes
    complete,   // the head, or the whole answer, is here
    stopped,    // the caller wants no more of the body
    malformed,  // see problem()
    cut_off,    // the connection ended in the middle of the answer
  };
  // Takes a piece of the body; returns false to stop.
  using Each = std::function<bool(std::string_view)>;

  AnswerReader();
  ~AnswerReader();
  AnswerReader(AnswerReader&&) noexcept;
  AnswerReader& operator=(AnswerReader&&) noexcept;

  void give(std::string_view bytes);
  void give_end();  // the connection has ended

  // Reads the head of the answer. Interim answers (status 1xx) before it are skipped.
  [[nodiscard]] State read_head();
  // Status and headers, after read_head() has returned `complete`.
  [[nodiscard]] const HttpReply& head() const;
  // Call it after the head. Passes on the part of the body that is here.
  [[nodiscard]] State read_body(const Each& each);
  // What is wrong with a malformed answer.
  [[nodiscard]] const std::string& problem() const;

 private:
  class Parser;
  struct Content;
  State find_head();
  State advance();
  State malformed(std::string problem);

  std::unique_ptr<Content> content_;
};

}  // namespace rubato::http

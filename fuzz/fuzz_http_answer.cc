// Takes any bytes as a daemon's HTTP answer. The first byte says how the rest is cut. The reader
// must find the same head, the same body and the same problem for every cut, and must keep its
// limits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/http/answer_reader.h"
#include "rubato/http/event_reader.h"

namespace {

using namespace rubato::fuzz;
using State = AnswerReader::State;

struct Outcome {
  State head = State::hungry;
  State body = State::hungry;
  HttpReply reply;
  std::string problem;
};

bool ended(State state) { return state != State::hungry; }

// Gives the reader `size` bytes at a time, as a client does with the bytes of a socket.
Outcome read(std::string_view bytes, std::size_t size) {
  AnswerReader reader;
  Outcome outcome;
  const AnswerReader::Each keep = [&](std::string_view piece) {
    CHECK(!piece.empty());
    outcome.reply.body += piece;
    return true;
  };
  for (bool given_all = false; !ended(outcome.body);) {
    if (!ended(outcome.head)) {
      outcome.head = reader.read_head();
      if (outcome.head == State::complete) outcome.reply = reader.head();
      if (ended(outcome.head) && outcome.head != State::complete) break;
    }
    if (outcome.head == State::complete) outcome.body = reader.read_body(keep);
    if (ended(outcome.body)) break;
    CHECK(!given_all);  // after the last byte there must be an outcome
    given_all = bytes.empty();
    if (given_all) reader.give_end();
    reader.give(bytes.substr(0, size));
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  outcome.problem = reader.problem();
  return outcome;
}

void check(const Outcome& outcome, std::size_t size) {
  const bool malformed = outcome.head == State::malformed || outcome.body == State::malformed;
  CHECK(malformed == !outcome.problem.empty());
  CHECK(outcome.reply.body.size() <= size);
  if (outcome.head != State::complete) return;
  CHECK(outcome.reply.status >= 200 && outcome.reply.status <= 599);
  std::size_t head = 0;
  for (const auto& [name, value] : outcome.reply.headers) head += name.size() + value.size();
  CHECK(head <= AnswerReader::kLargestHead);
}

void check_same(const Outcome& a, const Outcome& b) {
  CHECK(a.head == b.head && a.body == b.body && a.problem == b.problem);
  CHECK(a.reply.status == b.reply.status && a.reply.headers == b.reply.headers);
  CHECK(a.reply.body == b.reply.body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Beyond the limits, the cut decides which limit is noticed first.
  if (size == 0 || size > AnswerReader::kLargestHead) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto cut = read(bytes, 1U + data[0]);
  check(cut, bytes.size());
  const auto whole = read(bytes, std::max<std::size_t>(bytes.size(), 1));
  check(whole, bytes.size());
  check_same(whole, cut);
  // An event stream is read from the body.
  EventReader events;
  std::size_t data_bytes = 0;
  events.take(cut.reply.body, [&](const ServerEvent& event) {
    data_bytes += event.data.size();
    return true;
  });
  CHECK(data_bytes + events.buffered() <= 2 * bytes.size());
  return 0;
}

#include "rubato/daemon/text_delta.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rubato::daemon {
namespace {

std::string queue_of(const std::vector<int>& jobs, int stamp) {
  Json waiting = Json::array();
  for (const int job : jobs) waiting.push_back(Json::array({job, 4, "a,]\"b", 0.5}));
  return canonical_json({{"stamp", stamp}, {"running", Json::array()}, {"waiting", waiting}})
      .value();
}

// The plain way: all pieces of both texts, and an index of the old ones. Journals have its deltas.
std::vector<std::string_view> pieces_of(std::string_view text) {
  constexpr int kDeepest = 2;
  std::vector<std::string_view> pieces;
  std::size_t from = 0;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
      continue;
    }
    bool ends = false;
    if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      ends = ++depth <= kDeepest;
    } else if (c == ']' || c == '}') {
      if (depth-- <= kDeepest && i > from) {
        pieces.push_back(text.substr(from, i - from));
        from = i;
      }
    } else if (c == ',') {
      ends = depth <= kDeepest;
    }
    if (!ends) continue;
    pieces.push_back(text.substr(from, i + 1 - from));
    from = i + 1;
  }
  if (from < text.size()) pieces.push_back(text.substr(from));
  return pieces;
}

Json plain_delta(std::string_view before, std::string_view after) {
  const auto old_pieces = pieces_of(before);
  std::unordered_map<std::string_view, std::size_t> where;
  for (std::size_t i = 0; i < old_pieces.size(); ++i) where.try_emplace(old_pieces[i], i);
  Json delta = Json::array();
  std::string literal;
  std::size_t first = 0;
  std::size_t count = 0;
  const auto flush_run = [&] {
    if (count > 0) delta.push_back(Json::array({first, count}));
    count = 0;
  };
  const auto flush_literal = [&] {
    if (!literal.empty()) delta.push_back(std::exchange(literal, {}));
  };
  for (const std::string_view piece : pieces_of(after)) {
    if (count > 0 && first + count < old_pieces.size() && old_pieces[first + count] == piece) {
      ++count;
      continue;
    }
    const auto found = where.find(piece);
    flush_run();
    if (found == where.end()) {
      literal += piece;
      continue;
    }
    flush_literal();
    first = found->second;
    count = 1;
  }
  flush_run();
  flush_literal();
  return delta;
}

TEST(TextDelta, AGrowingQueueCostsWhatIsNew) {
  std::vector<int> jobs;
  for (int i = 0; i < 5000; ++i) jobs.push_back(i);
  const std::string before = queue_of(jobs, 1);
  jobs.erase(jobs.begin(), jobs.begin() + 3);
  jobs.erase(jobs.begin() + 1000);
  jobs.push_back(9999);
  const std::string after = queue_of(jobs, 2);
  DeltaText text(before);
  const Json delta = text.advance(after);
  EXPECT_LT(delta.dump().size(), 300U);
  EXPECT_EQ(delta, plain_delta(before, after));
  EXPECT_EQ(text.text(), after);
  DeltaText copy(before);
  ASSERT_TRUE(copy.apply(delta).ok());
  EXPECT_EQ(copy.text(), after);
}

TEST(TextDelta, NonsenseIsRefused) {
  for (const char* text :
       {"7", "[[0,99]]", "[[99,1]]", "[[-1,1]]", "[[0]]", "[null]", "[[0,18446744073709551615]]"})
    EXPECT_FALSE(DeltaText("[1,2]").apply(Json::parse(text)).ok()) << text;
  DeltaText kept("[1,2]");
  ASSERT_TRUE(kept.apply(Json::parse(R"(["x",[0,2]])")).ok());
  EXPECT_EQ(kept.text(), "x[1,");
}

// A life of texts: lists that lose, get and change elements, of which many are equal.
RC_GTEST_PROP(TextDelta, GivesTheVeryBytesAndWhatThePlainWayGives, ()) {
  const auto element = [] {
    const int n = *rc::gen::inRange(0, 6);
    return n == 0   ? Json("te\\\"[,")
           : n == 1 ? Json::array({n, Json::object()})
           : n == 2 ? Json::array()
                    : Json(n);
  };
  Json json = Json::object();
  DeltaText text(canonical_json(json).value());
  const int changes = *rc::gen::inRange(1, 30);
  for (int i = 0; i < changes; ++i) {
    const std::string before = text.text();
    for (int edits = *rc::gen::inRange(0, 4); edits > 0; --edits) {
      Json& list = json[std::to_string(*rc::gen::inRange(0, 3))];
      if (!list.is_array()) list = Json::array();
      const auto at = *rc::gen::inRange<std::size_t>(0, list.size() + 1);
      const bool there = at < list.size();
      const int what = *rc::gen::inRange(0, 6);
      if (what == 0 && there) {
        list.erase(at);
      } else if (what == 1 && there) {
        list[at] = element();
      } else if (what == 2) {
        list = element();
      } else {
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), element());
      }
    }
    const std::string after = canonical_json(json).value();
    DeltaText copy(before);
    const Json delta = text.advance(after);
    RC_ASSERT(text.text() == after);
    RC_ASSERT(delta == plain_delta(before, after));
    RC_ASSERT(copy.apply(delta).ok());
    RC_ASSERT(copy.text() == after);
    RC_ASSERT(copy.advance(before) == plain_delta(after, before));
  }
}

// What is no JSON is cut the same way, too.
RC_GTEST_PROP(TextDelta, CutsAnyTextLikeThePlainWay, ()) {
  const auto draw = [] {
    return *rc::gen::container<std::string>(
        rc::gen::element('[', ']', '{', '}', ',', '"', '\\', 'a'));
  };
  DeltaText text(draw());
  for (int i = 0; i < 5; ++i) {
    const std::string before = text.text();
    const std::string after = draw();
    RC_ASSERT(text.advance(after) == plain_delta(before, after));
  }
}

}  // namespace
}  // namespace rubato::daemon

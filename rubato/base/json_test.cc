#include "rubato/base/json.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

std::string nested(int depth, char open, char close) {
  return std::string(static_cast<std::size_t>(depth), open) +
         std::string(static_cast<std::size_t>(depth), close);
}

std::string problem(std::string_view text, JsonLimits limits = {}) {
  const auto json = parse_json(text, "in.json", limits);
  return json ? "accepted as " + json->dump() : json.error().message;
}

TEST(Json, KeepsValuesAndTheOrderOfKeys) {
  const auto json = parse_json(R"( {"b": [1, -2.5, null, true], "a": {"a": "\u00e9"}} )", "x");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->dump(), R"({"b":[1,-2.5,null,true],"a":{"a":"é"}})");
}

TEST(Json, RefusesWhatIsNotJson) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {""sv,          " "sv,        "{"sv,        "}"sv,
        "[1,]"sv,      "{\"a\":}"sv, "{a:1}"sv,    "NaN"sv,
        "-Infinity"sv, "1e400"sv,    "01"sv,       "+1"sv,
        "'a'"sv,       "\"\x80\""sv, "\"\xc3\""sv, "\"\xed\xa0\x80\""sv,
        "\"\n\""sv,    "1 2"sv,      "// no\n1"sv, "{} \0"sv,
        "{}\0{"sv,     "1\0"sv,      "tru"sv}) {
    EXPECT_TRUE(problem(text).starts_with("in.json: not valid JSON near byte ")) << problem(text);
  }
}

TEST(Json, RefusesDepthAtTheVeryLevel) {
  EXPECT_TRUE(parse_json(nested(64, '[', ']'), "x").ok());
  EXPECT_EQ(problem(nested(65, '[', ']')), "in.json: nested deeper than 64 levels");
  EXPECT_EQ(problem(nested(1'000'000, '[', ']')), "in.json: nested deeper than 64 levels");
  EXPECT_EQ(problem(R"({"a":{"b":[]}})", {.bytes = 100, .depth = 2}),
            "in.json: nested deeper than 2 levels");
  EXPECT_TRUE(parse_json("[[],[],[[]]]", "x", {.bytes = 100, .depth = 3}).ok())
      << "brothers are not depth";
}

TEST(Json, RefusesTwoEqualKeysInOneObjectOnly) {
  EXPECT_EQ(problem(R"({"a":1,"b":{"a":2},"a":3})"),
            "in.json: the key \"a\" appears twice in one object");
  EXPECT_EQ(problem(R"([{"a":1},{"k":0,"\u006b":1}])"),
            "in.json: the key \"k\" appears twice in one object")
      << "however it is spelled";
  EXPECT_TRUE(parse_json(R"([{"a":1},{"a":{"a":2}}])", "x").ok());
}

TEST(Json, AnErrorIsOneReadableLineWhateverTheKey) {
  const std::string message = problem("{\"a\\n\\u0007\":1,\"a\\n\\u0007\":2}");
  EXPECT_NE(message.find("appears twice"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Json, RefusesMoreBytesThanAllowed) {
  EXPECT_TRUE(parse_json("[1,2]", "x", {.bytes = 5}).ok());
  EXPECT_EQ(problem("[1,2] ", {.bytes = 5}), "in.json: larger than the 5 bytes allowed for JSON");
}

std::string canonical(const Json& value) {
  const auto text = canonical_json(value);
  return text ? *text : "refused: " + text.error().message;
}

TEST(CanonicalJson, HasOneSpellingForEachValue) {
  EXPECT_EQ(canonical(Json::parse(R"( {"b": [1, 2.50, -0.0, true, null], "a": {"d":1,"c":"x"}} )")),
            R"({"a":{"c":"x","d":1},"b":[1,2.5,-0.0,true,null]})");
  EXPECT_EQ(canonical(Json("q\"\\\n\x01\xc3\xa4")), "\"q\\\"\\\\\\n\\u0001\xc3\xa4\"");
  EXPECT_EQ(canonical(18446744073709551615ULL), "18446744073709551615");
  EXPECT_EQ(canonical(1e300), "1e+300");
  EXPECT_EQ(canonical(3.0), "3.0") << "a double stays one";
  EXPECT_EQ(canonical(Json::array()), "[]");
  EXPECT_EQ(canonical(Json::object()), "{}");
}

TEST(CanonicalJson, DoublesReadBackToTheBit) {
  Random random(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto value = std::bit_cast<double>(random.next());
    if (!std::isfinite(value)) continue;
    const auto again = parse_json(canonical(value), "x");
    ASSERT_TRUE(again.ok() && again->is_number_float());
    ASSERT_EQ(std::bit_cast<std::uint64_t>(again->get<double>()),
              std::bit_cast<std::uint64_t>(value));
  }
}

TEST(CanonicalJson, RefusesWhatCouldNotBeReadBack) {
  EXPECT_EQ(canonical(Json{{"a", std::nan("")}}), "refused: nan is no number that JSON knows");
  EXPECT_EQ(canonical(Json{-INFINITY}), "refused: -inf is no number that JSON knows");
  EXPECT_EQ(canonical("\xff"), "refused: \"\\xff\" is not UTF-8");
  EXPECT_EQ(canonical(Json{{"\xc3", 1}}), "refused: \"\\xc3\" is not UTF-8");
  Json deep = Json::array();
  for (int i = 1; i < 64; ++i) deep = Json::array({deep});
  EXPECT_TRUE(canonical_json(deep).ok());
  EXPECT_EQ(canonical(Json::array({deep})), "refused: nested deeper than 64 levels");
  EXPECT_FALSE(canonical_json(Json("12345"), {.bytes = 6}).ok());
}

}  // namespace
}  // namespace rubato::base

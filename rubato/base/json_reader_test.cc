#include "rubato/base/json_reader.h"

#include <functional>
#include <gtest/gtest.h>

namespace rubato::base {
namespace {

enum class Mode : std::uint8_t { fixed, adaptive };
constexpr std::array<NameOf<Mode>, 2> kModes = {
    {{Mode::fixed, "fixed"}, {Mode::adaptive, "adaptive"}}};

// What is wrong with a text when it is read so; empty if nothing is.
std::string problem(const char* text, const std::function<void(JsonFields&)>& read) {
  const Json json = Json::parse(text);
  JsonTrouble trouble;
  {
    JsonFields fields(JsonValue(json, trouble));
    read(fields);
  }
  return trouble.ok() ? "" : trouble.sentence("job");
}

TEST(JsonReader, ReadsWhatIsThere) {
  const Json json = Json::parse(
      R"({"on":true,"count":-3,"mask":18446744073709551615,"rate":2.5,"whole":7,"name":"é",
          "mode":"adaptive","rows":[[1,2],[3,4]],"words":["a","b"],"env":{"A":"1"}})");
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble));
  EXPECT_TRUE(fields["on"].boolean());
  EXPECT_EQ(fields["count"].integer(-5, 5), -3);
  EXPECT_EQ(fields["mask"].whole<std::uint64_t>(), 18446744073709551615ULL);
  EXPECT_EQ(fields["rate"].number(), 2.5);
  EXPECT_EQ(fields["whole"].number(0, 10), 7);
  EXPECT_EQ(fields["name"].text(2), "é");
  EXPECT_EQ(fields["mode"].choice(kModes), Mode::adaptive);
  int sum = 0;
  fields["rows"].each([&](const JsonValue& row) {
    if (row.is_row(2)) sum += row.at(0).whole<int>() * row.at(1).whole<int>();
  });
  EXPECT_EQ(sum, 14);
  EXPECT_EQ(fields["words"].texts(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields["env"].text_map(), (std::map<std::string, std::string>{{"A", "1"}}));
  EXPECT_FALSE(fields.find("more").has_value());
  fields.finish();
  EXPECT_TRUE(trouble.ok()) << trouble.sentence("x");
}

TEST(JsonReader, SaysWhatIsWrongAndWhere) {
  const auto count = [](JsonFields& fields) { (void)fields["count"].integer(1, 8); };
  EXPECT_EQ(problem(R"({"count":8})", count), "");
  for (const char* text :
       {R"({"count":0})", R"({"count":9})", R"({"count":2.0})", R"({"count":"2"})",
        R"({"count":18446744073709551615})", R"({"count":null})"}) {
    EXPECT_EQ(problem(text, count), "job.count: must be a whole number from 1 to 8") << text;
  }
  EXPECT_EQ(problem(R"({})", count), "job: lacks the field \"count\"");
  EXPECT_EQ(problem(R"([])", count), "job: must be an object");
  EXPECT_EQ(problem(R"({"count":1,"c\n":2})", count), "job: has the unknown field \"c\\x0a\"");
  const auto any = [](const auto& read) {
    return [read](JsonFields& fields) { read(fields["it"]); };
  };
  EXPECT_EQ(problem(R"({"it":1})", any([](const JsonValue& it) { (void)it.boolean(); })),
            "job.it: must be true or false");
  EXPECT_EQ(problem(R"({"it":-1})", any([](const JsonValue& it) { (void)it.natural(9); })),
            "job.it: must be a whole number from 0 to 9");
  EXPECT_EQ(problem(R"({"it":[]})", any([](const JsonValue& it) { (void)it.number(); })),
            "job.it: must be a number");
  EXPECT_EQ(problem(R"({"it":3})", any([](const JsonValue& it) { (void)it.number(0, 2.5); })),
            "job.it: must be a number from 0 to 2.5");
  EXPECT_EQ(problem(R"({"it":3})", any([](const JsonValue& it) { (void)it.text(); })),
            "job.it: must be text");
  EXPECT_EQ(problem(R"({"it":"abc"})", any([](const JsonValue& it) { (void)it.text(2); })),
            "job.it: is longer than 2 bytes");
  EXPECT_EQ(
      problem(R"({"it":"a\u0000"})", any([](const JsonValue& it) { (void)it.system_text(); })),
      "job.it: must be text without a NUL");
  EXPECT_EQ(problem(R"({"it":"odd"})", any([](const JsonValue& it) { (void)it.choice(kModes); })),
            "job.it: must be fixed or adaptive");
  EXPECT_EQ(problem(R"({"it":[1,[2]]})", any([](const JsonValue& it) {
                      it.each([](const JsonValue& one) { (void)one.whole<int>(); });
                    })),
            "job.it[1]: must be a whole number from -2147483648 to 2147483647");
  EXPECT_EQ(problem(R"({"it":[[1]]})", any([](const JsonValue& it) {
                      it.each([](const JsonValue& one) { (void)one.is_row(2); });
                    })),
            "job.it[0]: must be a list of 2");
  EXPECT_EQ(problem(R"({"it":{"a b":{"\u0007":1}}})", any([](const JsonValue& it) {
                      JsonFields outer(it);
                      (void)outer["a b"].text_map();
                    })),
            "job.it.a b.\"\\x07\": must be text without a NUL");
}

TEST(JsonReader, KeepsTheFirstTroubleAndGoesOnWithEmptyValues) {
  const Json json = Json::parse(R"({"a":1,"b":"x","c":[1]})");
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble));
  EXPECT_EQ(fields["a"].text(), "");
  EXPECT_EQ(fields["b"].integer(3, 4), 3);
  EXPECT_EQ(fields["missing"].number(), 0);
  EXPECT_FALSE(fields["missing"].boolean());
  EXPECT_TRUE(fields["c"].integers(0, 9).empty());
  EXPECT_EQ(fields["b"].choice(kModes), Mode::fixed);
  fields.finish();
  EXPECT_EQ(trouble.sentence("it"), "it.a: must be text");
  EXPECT_EQ(trouble.error("it").message, "it.a: must be text");
}

TEST(JsonReader, SaysWhichFieldsThereAre) {
  const Json json = Json::parse(R"({"a":1,"z":2})");
  JsonTrouble trouble;
  {
    JsonFields fields(JsonValue(json, trouble));
    (void)fields["a"].whole<int>();
    (void)fields.find("b");
  }
  ASSERT_TRUE(trouble.problem());
  EXPECT_EQ(trouble.problem()->kind, JsonProblem::Kind::unknown);
  EXPECT_EQ(trouble.problem()->field, "z");
  EXPECT_EQ(trouble.problem()->known, (std::vector<std::string>{"a", "b"}));
}

TEST(JsonReader, ANameMayEndBeforeTheFields) {
  const auto in_pieces = [](JsonFields& fields) {
    for (const char* end : {"first", "second"}) (void)fields[std::string("the_") + end].text();
  };
  EXPECT_EQ(problem(R"({"the_first":"a","the_second":"b"})", in_pieces), "");
}

TEST(JsonReader, IgnoresUnknownFieldsWhereOneSideMayBeNewer) {
  const Json json = Json::parse(R"({"a":1,"z":2})");
  JsonTrouble trouble;
  {
    JsonFields fields(JsonValue(json, trouble), JsonFields::Unknown::ignored);
    EXPECT_EQ(fields["a"].whole<int>(), 1);
  }
  EXPECT_TRUE(trouble.ok());
}

TEST(JsonReader, LooksForWhatMayBeAnything) {
  const Json json = Json::parse(R"({"a":1,"b":2.5,"c":"x","d":18446744073709551615})");
  EXPECT_EQ(look_for_number(json, "a"), 1);
  EXPECT_EQ(look_for_number(json, "c"), std::nullopt);
  EXPECT_EQ(look_for_number(Json(3), "a"), std::nullopt);
  EXPECT_EQ(look_for_integer(json, "a"), 1);
  EXPECT_EQ(look_for_integer(json, "b"), std::nullopt);
  EXPECT_EQ(look_for_integer(json, "d"), std::nullopt);
  EXPECT_EQ(look_for_text(json, "c"), "x");
  EXPECT_EQ(look_for_text(json, "a"), "");
  EXPECT_EQ(look_for(json, "e"), nullptr);
}

TEST(JsonReader, TablesNameTheirValues) {
  EXPECT_EQ(name_in(kModes, Mode::adaptive), "adaptive");
  EXPECT_EQ(name_in(kModes, static_cast<Mode>(7)), "");
}

}  // namespace
}  // namespace rubato::base

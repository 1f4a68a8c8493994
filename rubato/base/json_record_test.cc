#include "rubato/base/json_record.h"

#include <array>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rubato::base {
namespace {

enum class Mood { calm, wild };
constexpr std::array<NameOf<Mood>, 2> kMoods = {{{Mood::calm, "calm"}, {Mood::wild, "wild"}}};

struct Spot {
  int x = 0;
  double y = 0;
  friend bool operator==(const Spot&, const Spot&) = default;
};

struct Deer {
  Id<struct DeerTag> id;
  std::string name;
  Mood mood = Mood::calm;
  std::vector<Spot> spots;
  std::optional<Duration> age;
  std::shared_ptr<const Spot> home;
  int horns = 0;
  double weight = 0;
  std::pair<int, int> parents;  // has functions of its own
};

struct DeerFormat : RecordFormat {
  int parents_written = 0;
};
struct LenientFormat : DeerFormat {
  static constexpr auto kUnknownFields = JsonFields::Unknown::ignored;
};

const auto& names_of(const DeerFormat& /*format*/, Mood /*any*/) { return kMoods; }

void describe_row(auto& f, Is<Spot> auto& value) {
  auto& [x, y] = value;
  f(x, y);
}

void describe(auto& f, Is<Deer> auto& value) {
  auto& [id, name, mood, spots, age, home, horns, weight, parents] = value;
  f("age", age);
  f("home", home);
  f.unless_plain("horns", horns);
  f("id", id);
  f("mood", mood);
  f("name", name);
  f("parents", parents);
  f("spots", spots);
  f.finite_or_null("weight", weight);
}

Json write_json(auto& writer, const Is<std::pair<int, int>> auto& value) {
  ++writer.format().parents_written;
  if (value.first == value.second) writer.refuse("a deer with one parent");
  return value.first * 100 + value.second;
}

void read_json(auto& /*reader*/, const JsonValue& json, Is<std::pair<int, int>> auto& value) {
  const int both = json.whole<int>(0, 9999);
  value = {both / 100, both % 100};
}

Deer example_deer() {
  return {Id<struct DeerTag>(7), "Bo", Mood::wild, {{1, 2.5}, {3, 4}}, {}, {}, 0, 80, {1, 2}};
}

std::string text_of_deer(const Deer& deer) {
  DeerFormat format;
  return RecordWriter<DeerFormat>(format).write(deer).dump();
}

template <class Format>
std::string problem_with(const char* text, Deer& deer) {
  const Json json = Json::parse(text);
  JsonTrouble trouble;
  Format format;
  RecordReader<Format>(format).read(JsonValue(json, trouble), deer);
  return trouble.ok() ? "" : trouble.sentence("deer");
}

TEST(JsonRecord, OneDescriptionWritesAndReads) {
  const char* shortest =
      R"({"id":7,"mood":"wild","name":"Bo","parents":102,"spots":[[1,2.5],[3,4.0]],"weight":80.0})";
  EXPECT_EQ(text_of_deer(example_deer()), shortest) << "what is absent or plain is left out";
  Deer read;
  EXPECT_EQ(problem_with<DeerFormat>(shortest, read), "");
  EXPECT_EQ(text_of_deer(read), shortest);
  EXPECT_EQ(read.parents, std::pair(1, 2));

  Deer full = example_deer();
  full.age = Duration(5);
  full.home = std::make_shared<Spot>(Spot{8, 9});
  full.horns = 2;
  const std::string longest = text_of_deer(full);
  Deer again;
  EXPECT_EQ(problem_with<DeerFormat>(longest.c_str(), again), "");
  EXPECT_EQ(text_of_deer(again), longest);
  EXPECT_EQ(again.age, Duration(5));
  ASSERT_NE(again.home, nullptr);
  EXPECT_EQ(*again.home, (Spot{8, 9}));
}

TEST(JsonRecord, ANumberThatIsNotFiniteBecomesNullAndThenZero) {
  Deer deer = example_deer();
  deer.weight = std::numeric_limits<double>::infinity();
  const std::string text = text_of_deer(deer);
  EXPECT_NE(text.find(R"("weight":null)"), std::string::npos) << text;
  Deer read;
  EXPECT_EQ(problem_with<DeerFormat>(text.c_str(), read), "");
  EXPECT_EQ(read.weight, 0);
}

TEST(JsonRecord, TroubleNamesTheField) {
  const std::string start = R"({"id":7,"name":"Bo","parents":102,"weight":1,)";
  Deer deer;
  const auto problem = [&](const char* rest) {
    return problem_with<DeerFormat>((start + rest).c_str(), deer);
  };
  EXPECT_EQ(problem(R"("mood":"sad","spots":[]})"), "deer.mood: must be calm or wild");
  EXPECT_EQ(problem(R"("mood":"calm","spots":[[1]]})"), "deer.spots[0]: must be a list of 2");
  EXPECT_EQ(problem(R"("mood":"calm"})"), "deer: lacks the field \"spots\"");
  EXPECT_EQ(problem(R"("mood":"calm","spots":[],"tail":1})"),
            "deer: has the unknown field \"tail\"");
  EXPECT_EQ(
      problem_with<LenientFormat>((start + R"("mood":"calm","spots":[],"tail":1})").c_str(), deer),
      "");
}

TEST(JsonRecord, AWriterKeepsItsFirstTroubleAndItsFormat) {
  Deer deer = example_deer();
  deer.parents = {3, 3};
  DeerFormat format;
  RecordWriter<DeerFormat> writer(format);
  EXPECT_EQ(writer.trouble(), "");
  static_cast<void>(writer.write(deer));
  EXPECT_EQ(writer.trouble(), "a deer with one parent");
  EXPECT_EQ(format.parents_written, 1);
}

}  // namespace
}  // namespace rubato::base

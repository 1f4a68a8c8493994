#include "rubato/jobfile/yaml.h"

#include <gtest/gtest.h>
#include <string>

namespace rubato::jobfile {
namespace {

std::string read_yaml(const std::string& text, YamlLimits limits = {}) {
  const auto json = parse_yaml(text, "job.yaml", limits);
  return json ? json->dump() : json.error().message;
}

TEST(Yaml, ReadsMappingsListsAndWords) {
  EXPECT_EQ(read_yaml("a: [x, 'y z', 010]\nb:\n  c: 1e-3\n  d: true\n  e:\n# remark\nf: \"~\"\n"),
            R"({"a":["x","y z","010"],"b":{"c":"1e-3","d":"true","e":null},"f":"~"})");
  EXPECT_EQ(read_yaml("- a\n-\n  - b\n"), R"(["a",["b"]])");
  EXPECT_EQ(read_yaml("word"), R"("word")");
  EXPECT_EQ(read_yaml(""), "null");
  EXPECT_EQ(read_yaml("a: |\n  two\n  lines\n"), R"({"a":"two\nlines\n"})");
}

TEST(Yaml, RefusesWhatGrowsOrHides) {
  EXPECT_EQ(read_yaml("a: &x [1]\nb: 2\n"),
            "job.yaml: line 1 has an anchor; write out what it stands for");
  EXPECT_EQ(read_yaml("a: &x 1\nb: *x\n"),
            "job.yaml: line 1 has an anchor; write out what it stands for");
  EXPECT_TRUE(read_yaml("b: *x\n").starts_with("job.yaml: line 1")) << read_yaml("b: *x\n");
  EXPECT_EQ(read_yaml("a: !!python/object:os.system ls\n"),
            "job.yaml: line 1 has a tag; values need none here");
  EXPECT_EQ(read_yaml("a: !!int 3\n"), "job.yaml: line 1 has a tag; values need none here");
  EXPECT_EQ(read_yaml("a: 1\nb: 2\na: 3\n"), "job.yaml: line 3 has \"a\" twice");
  EXPECT_EQ(read_yaml("? [a]\n: 1\n"), "job.yaml: line 1 has a key that is not a word");
  EXPECT_EQ(read_yaml("a: 1\n---\nb: 2\n"),
            "job.yaml: line 2 has a second document; write one job to a file");
}

TEST(Yaml, NineLinesDoNotBecomeABillionValues) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) bomb += std::string(k ? "," : "") + "*a" + std::to_string(i - 1);
    bomb += "]\n";
  }
  EXPECT_EQ(read_yaml(bomb), "job.yaml: line 1 has an anchor; write out what it stands for");
}

TEST(Yaml, KeepsItsLimits) {
  EXPECT_EQ(read_yaml("[[[[]]]]", {100, 3, 100}),
            "job.yaml: line 1 is nested deeper than 3 levels");
  EXPECT_EQ(read_yaml("[[[]]]", {100, 3, 100}), "[[[]]]");
  EXPECT_EQ(read_yaml("[1,2,3,4]", {100, 3, 3}), "job.yaml: line 1 has more than 3 values");
  EXPECT_EQ(read_yaml("[1,2,3,4]", {8, 3, 3}),
            "job.yaml: larger than the 8 bytes allowed for YAML");
  EXPECT_EQ(read_yaml(std::string(20, '[') + std::string(20, ']')),
            "job.yaml: line 1 is nested deeper than 16 levels");
  EXPECT_TRUE(read_yaml(std::string(60'000, '[')).starts_with("job.yaml: line 1 "));
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_EQ(read_yaml(deep), "job.yaml: line 17 is nested deeper than 16 levels");
}

TEST(Yaml, BrokenTextIsAnErrorWithItsLine) {
  for (const char* text : {"a: [1\n", "a: b: c\n", "\ta: 1\n", "%YAML 1.2 3\n---\na: 1\n",
                           "a: \"\\q\"\n", "}", "a: {b\n"}) {
    EXPECT_TRUE(read_yaml(text).starts_with("job.yaml: line "))
        << text << " -> " << read_yaml(text);
  }
  EXPECT_EQ(read_yaml("a: \xff"), "job.yaml: not UTF-8 text");
  EXPECT_EQ(read_yaml(std::string("a: b\0c", 6)), "job.yaml: not UTF-8 text");
}

}  // namespace
}  // namespace rubato::jobfile

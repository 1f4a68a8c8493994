#include "rubato/jobfile/job_fields.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "rubato/base/testing.h"
#include "rubato/jobfile/job_flags.h"

namespace rubato::jobfile {
namespace {

Json example_of(const JobField& field) {
  const auto json = parse_json(field.example, std::string(field.name));
  EXPECT_TRUE(json.ok()) << field.name << ": " << json.error().message;
  return *json;
}

// A job with the example of one field and nothing else.
Json job_with(const JobField& field) {
  Json job = {{"command", {"a"}}};
  job[std::string(field.name)] = example_of(field);
  return job;
}

TEST(JobFields, EachExampleIsReadAndWrittenAsItIs) {
  const Json plain = to_json(*read_job({{"command", {"a"}}}, "plain"));
  for (const JobField& field : job_fields()) {
    const std::string name(field.name);
    const auto job = read_job(job_with(field), "job");
    ASSERT_TRUE(job.ok()) << job.error().message;
    const Json written = to_json(*job);
    EXPECT_EQ(written[name], example_of(field)) << name;
    EXPECT_NE(written, plain) << name << ": an example must differ from the default";
    const auto again = read_job(written, "again");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(to_json(*again), written) << name;
  }
}

TEST(JobFields, EachFlagWithAPlainValueGivesItsField) {
  for (const JobField& field : job_fields()) {
    if (field.flag.kind != JobFlag::Kind::one || field.flag.put != nullptr) continue;
    const Json example = example_of(field);
    const auto* text = example.get_ptr<const std::string*>();
    JobFlags flags;
    flags.command = {"a"};
    flags.given[std::string(field.flag.name)] = {text != nullptr ? *text : example.dump()};
    const auto json = with_flags({}, flags);
    ASSERT_TRUE(json.ok()) << json.error().message;
    const auto job = read_job(*json, "flags");
    ASSERT_TRUE(job.ok()) << job.error().message;
    EXPECT_EQ(to_json(*job)[std::string(field.name)], example) << field.name;
  }
}

TEST(JobFields, NamesAndFlagsAreUniqueAndFlagsAreExplained) {
  std::set<std::string_view> names;
  std::set<std::string_view> flags;
  for (const JobField& field : job_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    if (field.flag.kind == JobFlag::Kind::none) continue;
    EXPECT_TRUE(flags.insert(field.flag.name).second) << field.flag.name;
    EXPECT_TRUE(field.flag.name.starts_with("--")) << field.name;
    EXPECT_FALSE(field.flag.help.empty()) << field.name;
  }
}

TEST(JobFields, TheSchedulerIsTold) {
  const auto job = read_job({{"command", {"a"}},
                             {"weight", 2},
                             {"cooldown", "2m"},
                             {"class", "opportunistic"},
                             {"batch", {{"mode", "adaptive"}, {"min", 64}}}},
                            "job");
  ASSERT_TRUE(job.ok()) << job.error().message;
  JobSpec spec;
  tell_scheduler(*job, spec);
  EXPECT_EQ(spec.weight, 2);
  EXPECT_EQ(spec.cooldown, std::chrono::minutes(2));
  EXPECT_EQ(spec.batch, 64);
  EXPECT_TRUE(spec.adaptive_batch);
  EXPECT_TRUE(spec.opportunistic);
}

TEST(JobFields, AProgramThatCannotBeSlowedDownIsNotOpportunistic) {
  const auto job =
      read_job({{"command", {"a"}}, {"class", "opportunistic"}, {"elastic", false}}, "job.yaml");
  ASSERT_FALSE(job.ok());
  EXPECT_NE(job.error().message.find("needs a program that uses Rubato's library"),
            std::string::npos)
      << job.error().message;
}

// --- the pages that list the fields ---

std::string table_of_fields() {
  std::string text = "| field | type | default | meaning |\n|---|---|---|---|\n";
  for (const JobField& field : job_fields()) text += field.docs;
  return text;
}

std::string table_of_flags() {
  std::string text = "| field | flag |\n|---|---|\n";
  std::string others;
  for (const JobField& field : job_fields()) {
    const JobFlag& flag = field.flag;
    if (!flag.docs.empty()) {
      text += fmt::format("| `{}{}` | {} |\n", field.name,
                          flag.kind == JobFlag::Kind::off ? ": false" : "", flag.docs);
    } else {
      others += fmt::format("{}`{}`", others.empty() ? "" : ", ", flag.name);
    }
  }
  return text + fmt::format("| all others | {} |\n", others);
}

std::string schema() {
  std::string text;
  for (const JobField& field : job_fields())
    text += fmt::format("        {}: {}\n", field.name, field.schema);
  return text;
}

// Compares what stands between two marks of a page with `text`, or writes it there.
void check_page(const std::string& page, const std::string& begin, const std::string& end,
                const std::string& text) {
  const std::filesystem::path path = build_tree() / ".." / page;
  std::ifstream in(path, std::ios::binary);
  const std::string old{std::istreambuf_iterator<char>(in), {}};
  const auto from = old.find(begin);
  ASSERT_NE(from, std::string::npos) << page << " has no line " << begin;
  const auto first = from + begin.size();
  const auto last = old.find(end, first);
  ASSERT_NE(last, std::string::npos) << page << " has no line " << end;
  if (old.substr(first, last - first) == text) return;
  if (std::getenv("RUBATO_WRITE_DOCS") == nullptr) {
    ADD_FAILURE() << page << " does not list the fields of job_fields.cc; write it again with "
                  << "RUBATO_WRITE_DOCS=1 build/test_jobfile. It should have:\n"
                  << text;
    return;
  }
  std::ofstream(path, std::ios::binary) << old.substr(0, first) << text << old.substr(last);
}

TEST(JobFields, ThePagesListThem) {
  const auto mark = [](const char* which, const char* what) {
    return fmt::format("<!-- {}: {}, written by test_jobfile -->\n", which, what);
  };
  check_page("docs/job-file.md", mark("begin", "fields") + "\n", "\n" + mark("end", "fields"),
             table_of_fields());
  check_page("docs/job-file.md", mark("begin", "flags") + "\n", "\n" + mark("end", "flags"),
             table_of_flags());
  check_page("docs/openapi.yaml", "        # begin: fields, written by test_jobfile\n",
             "        # end: fields\n", schema());
}

}  // namespace
}  // namespace rubato::jobfile

#include "rubato/sim/csv.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <string>
#include <vector>

namespace rubato::sim {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// All rows, or the error as a single field.
Rows rows_of(std::string_view text, char separator = ',') {
  CsvReader reader(text, "t.csv", separator);
  Rows rows;
  CsvRow row;
  for (;;) {
    auto got = reader.next(row);
    if (!got) return {{got.error().message}};
    if (!*got) return rows;
    rows.emplace_back(row.fields.begin(), row.fields.end());
  }
}

TEST(Csv, ReadsRows) {
  EXPECT_EQ(rows_of(""), Rows{});
  EXPECT_EQ(rows_of("a,b\n1,2\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows_of("a,b\r\n1,2\r\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows_of("\n \na, b \n\n,\n1,2"), (Rows{{"a", "b"}, {"", ""}, {"1", "2"}}));
  EXPECT_EQ(rows_of("\xEF\xBB\xBF"
                    "a"),
            (Rows{{"a"}}));
  EXPECT_EQ(rows_of("a\tb\n\"1\t\n", '\t'), (Rows{{"a", "b"}, {"\"1", ""}}));
}

TEST(Csv, ReadsQuotes) {
  EXPECT_EQ(rows_of("\"a,b\",c\n"), (Rows{{"a,b", "c"}}));
  EXPECT_EQ(rows_of("\"a \"\"b\"\"\", \" c\" \r\nd,e"), (Rows{{"a \"b\"", " c"}, {"d", "e"}}));
  EXPECT_EQ(rows_of("\"two\nlines\",x\ny,z"), (Rows{{"two\nlines", "x"}, {"y", "z"}}));
  EXPECT_EQ(rows_of("a,\"\""), (Rows{{"a", ""}}));
}

TEST(Csv, CountsLinesThroughQuotedLineEnds) {
  CsvReader reader("\"a\n\nb\",c\n\nd,e\n", "t.csv");
  CsvRow row;
  ASSERT_TRUE(reader.next(row).value());
  EXPECT_EQ(row.line, 1U);
  ASSERT_TRUE(reader.next(row).value());
  EXPECT_EQ(row.line, 5U);
}

TEST(Csv, RefusesWhatIsNoCsv) {
  EXPECT_EQ(rows_of("a\n\"b"), (Rows{{"t.csv:2: a quoted field has no end"}}));
  EXPECT_EQ(rows_of("a\"b"), (Rows{{"t.csv:1: a quote inside the unquoted field \"a\"b\""}}));
  EXPECT_EQ(rows_of("\"a\"b,c"), (Rows{{"t.csv:1: \"b\" after the closing quote"}}));
  const std::string large((1U << 20U) + 1, 'x');
  EXPECT_EQ(rows_of("a\n" + large), (Rows{{"t.csv:2: line longer than 1 MiB"}}));
  std::string tall = "\"";
  for (int i = 0; i < 20; ++i) tall += std::string(1U << 16U, 'x') + "\n";
  EXPECT_EQ(rows_of(tall + "\""), (Rows{{"t.csv:1: quoted field longer than 1 MiB"}}));
}

TEST(CsvHeader, FindsColumnsByAnyOfTheirNames) {
  const std::string text = "Job_ID, ddl ,num_gpu";
  CsvReader reader(text, "t.csv");
  CsvRow row;
  ASSERT_TRUE(reader.next(row).value());
  const auto header = CsvHeader::of(row, reader);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->find("job_id"), 0U);
  EXPECT_EQ(header->find("deadline|ddl"), 1U);
  EXPECT_EQ(header->find("duration"), std::nullopt);
}

TEST(CsvHeader, RefusesTwoColumnsOfOneName) {
  CsvReader reader("a,b,A,,\n", "t.csv");
  CsvRow row;
  ASSERT_TRUE(reader.next(row).value());
  EXPECT_EQ(CsvHeader::of(row, reader).error().message, "t.csv:1: two columns are called \"a\"");
}

RC_GTEST_PROP(CsvField, ReadsBackAsWritten, (const std::string& first, const std::string& second)) {
  const std::string line = csv_field(first) + "," + csv_field(second) + "\n";
  RC_PRE(first.find('\0') == std::string::npos);
  RC_ASSERT(rows_of(line) == (Rows{{first, second}}));
}

}  // namespace
}  // namespace rubato::sim

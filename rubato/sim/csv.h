// A strict reader of comma- or tab-separated text. Quotes are as in RFC 4180 (only with commas: a
// tab-separated file has no quotes). CRLF, blank lines and a byte-order mark are accepted. Fields
// are views into the text, so the text must outlive them.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/sim/text_file.h"

namespace rubato::sim {

struct CsvRow {
  std::size_t line = 0;  // where the row begins, from 1
  std::vector<std::string_view> fields;
  std::deque<std::string> unescaped;  // storage for fields with doubled quotes
};

class CsvReader {
 public:
  CsvReader(std::string_view text, std::string source, char separator = ',');

  // Reads the next row that is not blank; false at the end. Removes blanks around unquoted fields.
  [[nodiscard]] Result<bool> next(CsvRow& row);

  // "jobs.csv:7: <problem>"
  [[nodiscard]] Error error_at(std::size_t line, std::string_view problem) const;
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  [[nodiscard]] Result<bool> next_quoted(CsvRow& row);
  [[nodiscard]] std::optional<Error> quoted_field(CsvRow& row);

  std::string_view text_;
  std::string source_;
  char separator_;
  std::size_t at_ = 0;    // of the next unread byte
  std::size_t line_ = 1;  // of that byte
  TextLimits limits_;
};

// The names in a file's first row, lower case. Two equal names are refused.
class CsvHeader {
 public:
  static Result<CsvHeader> of(const CsvRow& row, const CsvReader& reader);

  // The column called one of `names`, which are separated by "|"; nullopt if there is none.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view names) const;
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// The field as CSV text, quoted if necessary.
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace rubato::sim

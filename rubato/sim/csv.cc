#include "rubato/sim/csv.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/text.h"

namespace rubato::sim {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

void split_into(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  for (;;) {
    const auto at = line.find(separator);
    // A tab may separate fields but is never part of one, so trim() is right for both separators.
    fields.push_back(trim(line.substr(0, at)));
    if (at == std::string_view::npos) return;
    line.remove_prefix(at + 1);
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

CsvReader::CsvReader(std::string_view text, std::string source, char separator)
    : text_(text), source_(std::move(source)), separator_(separator) {
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
}

Error CsvReader::error_at(std::size_t line, std::string_view problem) const {
  return Error{fmt::format("{}:{}: {}", source_, line, problem)};
}

Result<bool> CsvReader::next(CsvRow& row) {
  row.fields.clear();
  row.unescaped.clear();
  while (at_ < text_.size()) {
    const auto end = std::min(text_.find('\n', at_), text_.size());
    const auto line = text_.substr(at_, end - at_);
    if (line.size() > limits_.line) {
      return error_at(line_, fmt::format("line longer than {} MiB", limits_.line >> 20U));
    }
    row.line = line_;
    if (separator_ == ',' && line.find('"') != std::string_view::npos) return next_quoted(row);
    at_ = end + 1;
    ++line_;
    if (trim(line).empty()) continue;
    split_into(line, separator_, row.fields);
    return true;
  }
  return false;
}

// A row with quotes. It may continue over several lines.
Result<bool> CsvReader::next_quoted(CsvRow& row) {
  for (;;) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (at_ < text_.size() && text_[at_] == '"') {
      if (auto bad = quoted_field(row)) return *bad;
    } else {
      const auto end = std::min(text_.find_first_of(",\n", at_), text_.size());
      const auto field = trim(text_.substr(at_, end - at_));
      if (field.find('"') != std::string_view::npos) {
        return error_at(row.line,
                        fmt::format("a quote inside the unquoted field {}", base::quoted(field)));
      }
      row.fields.push_back(field);
      at_ = end;
    }
    if (at_ >= text_.size()) return true;
    if (text_[at_++] == '\n') {
      ++line_;
      return true;
    }
  }
}

// Reads from an opening quote to the separator or line end after the closing quote.
std::optional<Error> CsvReader::quoted_field(CsvRow& row) {
  const auto start = ++at_;
  bool doubled = false;
  for (;;) {
    const auto quote = text_.find('"', at_);
    if (std::min(quote, text_.size()) - start > limits_.line) {
      return error_at(row.line,
                      fmt::format("quoted field longer than {} MiB", limits_.line >> 20U));
    }
    if (quote == std::string_view::npos) return error_at(row.line, "a quoted field has no end");
    at_ = quote + 1;
    if (at_ >= text_.size() || text_[at_] != '"') break;
    doubled = true;
    ++at_;
  }
  const auto inside = text_.substr(start, at_ - 1 - start);
  line_ += static_cast<std::size_t>(std::count(inside.begin(), inside.end(), '\n'));
  if (doubled) {
    std::string plain;
    for (std::size_t i = 0; i < inside.size(); ++i) {
      plain += inside[i];
      if (inside[i] == '"') ++i;
    }
    row.fields.emplace_back(row.unescaped.emplace_back(std::move(plain)));
  } else {
    row.fields.push_back(inside);
  }
  const auto end = std::min(text_.find_first_of(",\n", at_), text_.size());
  const auto rest = trim(text_.substr(at_, end - at_));
  if (!rest.empty()) {
    return error_at(row.line, fmt::format("{} after the closing quote", base::quoted(rest)));
  }
  at_ = end;
  return std::nullopt;
}

Result<CsvHeader> CsvHeader::of(const CsvRow& row, const CsvReader& reader) {
  CsvHeader header;
  for (const auto field : row.fields) header.names_.push_back(lower(field));
  auto sorted = header.names_;
  std::erase(sorted, "");  // spreadsheets often append columns without a name
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return reader.error_at(row.line,
                           fmt::format("two columns are called {}", base::quoted(*twice)));
  }
  return header;
}

std::optional<std::size_t> CsvHeader::find(std::string_view names) const {
  for (const auto name : split(names, '|')) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at != names_.end()) return static_cast<std::size_t>(at - names_.begin());
  }
  return std::nullopt;
}

std::string csv_field(std::string_view text) {
  const bool plain = text.find_first_of(",\"\r\n") == std::string_view::npos && trim(text) == text;
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace rubato::sim

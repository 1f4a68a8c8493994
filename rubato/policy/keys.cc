#include "rubato/policy/keys.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::policy {

Key whole_key(std::string name, long long fallback, long long least, long long most,
              std::string help) {
  auto canonical = [=](std::string_view text) -> Result<std::string> {
    const auto value = parse_integer(text);
    if (value && *value >= least && *value <= most) return fmt::format("{}", *value);
    return Error{fmt::format("must be a whole number from {} to {}", least, most)};
  };
  return {std::move(name), fmt::format("{}", fallback), std::move(help), std::move(canonical)};
}

Key number_key(std::string name, double fallback, double least, double most, std::string help) {
  auto canonical = [=](std::string_view text) -> Result<std::string> {
    const auto value = parse_double(text);
    if (value && *value >= least && *value <= most) return shortest(*value + 0.0);  // no "-0"
    return Error{fmt::format("must be a number from {} to {}", least, most)};
  };
  return {std::move(name), shortest(fallback), std::move(help), std::move(canonical)};
}

Key choice_key(std::string name, std::vector<std::string> choices, std::string help) {
  std::string fallback = choices.front();
  auto canonical = [choices = std::move(choices)](std::string_view text) -> Result<std::string> {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return std::string(text);
    return Error{fmt::format("must be one of {}", fmt::join(choices, ", "))};
  };
  return {std::move(name), std::move(fallback), std::move(help), std::move(canonical)};
}

Key ascending_key(std::string name, std::string fallback, std::string help) {
  auto canonical = [](std::string_view text) -> Result<std::string> {
    const Error wrong{"must be ascending numbers above 0 separated by '/', at most 64 of them"};
    std::string out;
    double last = 0;
    const auto items = split(text, '/');
    if (items.size() > 64) return wrong;
    for (const auto item : items) {
      const auto value = parse_double(item);
      if (!value || !(*value > last) || *value > 1e15) return wrong;
      out += (out.empty() ? "" : "/") + shortest(*value);
      last = *value;
    }
    return out;
  };
  return {std::move(name), std::move(fallback), std::move(help), std::move(canonical)};
}

Key list_key(std::string name, std::string help) {
  auto canonical = [](std::string_view text) -> Result<std::string> {
    std::string out;
    if (text.empty()) return out;
    const auto items = split(text, '/');
    for (const auto item : items) {
      const auto value = parse_double(item);
      if (!value || !(*value > 0) || *value > 1e15 || items.size() > 64)
        return Error{"must be numbers above 0 separated by '/', at most 64 of them"};
      out += (out.empty() ? "" : "/") + shortest(*value);
    }
    return out;
  };
  return {std::move(name), "", std::move(help), std::move(canonical)};
}

Key weights_key(std::string name, std::string help) {
  auto canonical = [](std::string_view text) -> Result<std::string> {
    std::map<std::string, std::string> weights;
    if (text.empty()) return std::string();
    for (const auto item : split(text, '/')) {
      const auto colon = item.rfind(':');
      const auto value =
          parse_double(colon == std::string_view::npos ? "" : item.substr(colon + 1));
      if (!value || !(*value > 0) || *value > 1e15 || colon == 0 ||
          !weights.emplace(item.substr(0, colon), shortest(*value)).second) {
        return Error{"must be NAME:NUMBER separated by '/', numbers above 0, each name once"};
      }
    }
    std::string out;
    for (const auto& [who, weight] : weights)
      out += fmt::format("{}{}:{}", out.empty() ? "" : "/", who, weight);
    return out;
  };
  return {std::move(name), "", std::move(help), std::move(canonical)};
}

Key path_key(std::string name, std::string help) {
  auto canonical = [](std::string_view text) -> Result<std::string> { return std::string(text); };
  return {std::move(name), "", std::move(help), std::move(canonical)};
}

long long KeyValues::whole(const std::string& key) const {
  const auto value = parse_integer(text(key));
  CHECK(value.has_value());
  return *value;
}

double KeyValues::number(const std::string& key) const {
  const auto value = parse_double(text(key));
  CHECK(value.has_value());
  return *value;
}

std::vector<double> KeyValues::numbers(const std::string& key) const {
  std::vector<double> values;
  if (text(key).empty()) return values;
  for (const auto item : split(text(key), '/')) values.push_back(parse_double(item).value());
  return values;
}

std::map<std::string, double> KeyValues::weights(const std::string& key) const {
  std::map<std::string, double> weights;
  if (text(key).empty()) return weights;
  for (const auto item : split(text(key), '/')) {
    const auto colon = item.rfind(':');
    weights.emplace(item.substr(0, colon), parse_double(item.substr(colon + 1)).value());
  }
  return weights;
}

}  // namespace rubato::policy

// Settings of a policy as users write them: NAME:key=value,key=value. Each key has a default and a
// check. The canonical form of a policy has only the keys that differ from their default.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::policy {

struct Key {
  std::string name;
  std::string fallback;  // the default, in canonical form
  std::string help;
  // The canonical form of a value, or a sentence that says which values are allowed.
  std::function<Result<std::string>(std::string_view)> canonical;
};

[[nodiscard]] Key whole_key(std::string name, long long fallback, long long least, long long most,
                            std::string help);
[[nodiscard]] Key number_key(std::string name, double fallback, double least, double most,
                             std::string help);
[[nodiscard]] Key choice_key(std::string name, std::vector<std::string> choices, std::string help);
// Ascending numbers above 0, separated by '/'.
[[nodiscard]] Key ascending_key(std::string name, std::string fallback, std::string help);
// Numbers above 0 in any order, separated by '/'; may be empty.
[[nodiscard]] Key list_key(std::string name, std::string help);
// NAME:NUMBER/NAME:NUMBER, numbers above 0; may be empty.
[[nodiscard]] Key weights_key(std::string name, std::string help);
[[nodiscard]] Key path_key(std::string name, std::string help);

// Checked values, one for every key of the policy.
class KeyValues {
 public:
  explicit KeyValues(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  [[nodiscard]] const std::string& text(const std::string& key) const { return values_.at(key); }
  [[nodiscard]] long long whole(const std::string& key) const;
  [[nodiscard]] double number(const std::string& key) const;
  [[nodiscard]] std::vector<double> numbers(const std::string& key) const;
  [[nodiscard]] std::map<std::string, double> weights(const std::string& key) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace rubato::policy

#include "rubato/elastic/schema.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/text.h"

namespace rubato::elastic {
namespace {

const Json& member(const Json& object, const std::string& key) {
  static const Json absent;
  if (!object.is_object()) return absent;
  const auto found = object.find(key);
  return found == object.end() ? absent : *found;
}

std::size_t length(const Json& list) { return list.is_array() ? list.size() : 0; }

// Only for the sentence. The text of a peer may be long or contain control characters.
std::string plain(const Json& value) {
  if (value.is_null()) return "nothing";
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  const std::string visible = base::quoted(text);
  return visible.substr(1, visible.size() - 2);  // without the quotation marks
}

std::string described(const Json& entry) {
  std::string text = fmt::format("{} of shape {} and type {}", plain(member(entry, "name")),
                                 plain(member(entry, "shape")), plain(member(entry, "dtype")));
  const Json& trained = member(entry, "trained");
  if (trained.is_boolean() && !trained.get<bool>()) text += " (frozen)";
  return text;
}

std::optional<std::string> difference_in(const Json& ours, const Json& theirs,
                                         const std::string& key, const std::string& noun) {
  const Json& our_list = member(ours, key);
  const Json& their_list = member(theirs, key);
  const std::size_t both = std::min(length(our_list), length(their_list));
  for (std::size_t i = 0; i < both; ++i) {
    if (our_list[i] == their_list[i]) continue;
    return fmt::format(
        "{} {} is {} here but {} at the other worker: both must build the same model", noun, i,
        described(our_list[i]), described(their_list[i]));
  }
  if (length(our_list) == length(their_list)) return {};
  const bool more_here = length(our_list) > both;
  return fmt::format("{} {} exists only {}: {}: both must build the same model", noun, both,
                     more_here ? "here" : "at the other worker",
                     described(more_here ? our_list[both] : their_list[both]));
}

}  // namespace

std::optional<std::string> difference(const Json& ours, const Json& theirs) {
  if (ours == theirs) return {};
  for (const auto& [key, noun] : {std::pair<std::string, std::string>{"parameters", "parameter"},
                                  std::pair<std::string, std::string>{"buffers", "buffer"}}) {
    if (auto found = difference_in(ours, theirs, key, noun)) return found;
  }
  for (const auto& [key, noun] :
       {std::pair<std::string, std::string>{"optimizer", "the optimizer"},
        std::pair<std::string, std::string>{"bucket_floats", "the bucket size"}}) {
    if (member(ours, key) == member(theirs, key)) continue;
    return fmt::format("{} is {} here but {} at the other worker: start both with the same", noun,
                       plain(member(ours, key)), plain(member(theirs, key)));
  }
  return "the other worker describes its model in a form this version does not know: run the same "
         "version everywhere";
}

}  // namespace rubato::elastic

#include "rubato/daemon/request.h"

#include <array>
#include <fmt/format.h>
#include <type_traits>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato {
namespace {

constexpr std::array<std::pair<JobState, std::string_view>, 10> kStates{{
    {JobState::pending, "PENDING"},
    {JobState::profiling, "PROFILING"},
    {JobState::held, "HELD"},
    {JobState::running, "RUNNING"},
    {JobState::resizing, "RESIZING"},
    {JobState::stopping, "STOPPING"},
    {JobState::completed, "COMPLETED"},
    {JobState::failed, "FAILED"},
    {JobState::cancelled, "CANCELLED"},
    {JobState::refused, "REFUSED"},
}};

template <class... Any>
struct Admins {
  template <class T>
  bool operator()(const T& /*ask*/) const {
    return (std::is_same_v<T, Any> || ...);
  }
};

}  // namespace

std::string_view to_text(JobState state) {
  for (const auto& [value, name] : kStates) {
    if (value == state) return name;
  }
  CHECK(false);
}

std::optional<JobState> parse_job_state(std::string_view text) {
  for (const auto& [value, name] : kStates) {
    if (name == text) return value;
  }
  return std::nullopt;
}

Answer refusal(int status, std::string sentence) {
  return {status, Json{{"error", std::move(sentence)}}};
}

Answer no_such_job(const JobRef& job) {
  if (const auto* id = std::get_if<JobId>(&job)) {
    return refusal(404, fmt::format("there is no job {}", id->value()));
  }
  return refusal(404,
                 fmt::format("there is no job {}", rubato::quoted(std::get<std::string>(job))));
}

bool needs_admin(const Ask& ask) {
  return std::visit(
      Admins<SetNode, SwitchPolicy, AddUser, RemoveUser, ListUsers, AddToken, RemoveToken>{}, ask);
}

}  // namespace rubato

#include "rubato/api/request.h"

#include <array>
#include <fmt/format.h>
#include <type_traits>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::api {
namespace {

struct StateName {
  JobState state;
  std::string_view name;
  std::string_view letters;  // as squeue has them, where it knows the state
};
constexpr std::array<StateName, 10> kStates{{
    {JobState::pending, "PENDING", "PD"},
    {JobState::profiling, "PROFILING", "PF"},
    {JobState::held, "HELD", "HD"},
    {JobState::running, "RUNNING", "R"},
    {JobState::resizing, "RESIZING", "RS"},
    {JobState::stopping, "STOPPING", "CG"},
    {JobState::completed, "COMPLETED", "CD"},
    {JobState::failed, "FAILED", "F"},
    {JobState::cancelled, "CANCELLED", "CA"},
    {JobState::refused, "REFUSED", "RF"},
}};

template <class T>
constexpr bool kOnlyAdmins = requires {
  requires T::kForAdmins;
};

}  // namespace

std::string_view to_text(JobState state) {
  for (const StateName& one : kStates) {
    if (one.state == state) return one.name;
  }
  CHECK(false);
}

std::string_view short_text(JobState state) {
  for (const StateName& one : kStates) {
    if (one.state == state) return one.letters;
  }
  CHECK(false);
}

std::optional<JobState> parse_job_state(std::string_view text) {
  for (const StateName& one : kStates) {
    if (one.name == text || one.letters == text) return one.state;
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
  return refusal(404, fmt::format("there is no job {}", base::quoted(std::get<std::string>(job))));
}

bool needs_admin(const Ask& ask) {
  return std::visit([](const auto& one) { return kOnlyAdmins<std::decay_t<decltype(one)>>; }, ask);
}

}  // namespace rubato::api

#include "rubato/http/page_codes.h"

#include "rubato/http/callers.h"

namespace rubato::http {

std::string PageCodes::make(const Caller& caller, Time now) {
  drop_old(now);
  std::size_t count = 0;
  auto oldest = codes_.end();
  for (auto one = codes_.begin(); one != codes_.end(); ++one) {
    if (one->second.caller.user != caller.user) continue;
    ++count;
    if (oldest == codes_.end() || one->second.until < oldest->second.until) oldest = one;
  }
  if (count >= kMost) codes_.erase(oldest);
  std::string code = new_token();
  codes_[token_hash(code)] = {caller, now + kHolds};
  return code;
}

std::optional<Caller> PageCodes::take(std::string_view code, Time now) {
  drop_old(now);
  const auto found = codes_.find(token_hash(code));
  if (found == codes_.end()) return std::nullopt;
  Caller caller = found->second.caller;
  codes_.erase(found);
  return caller;
}

void PageCodes::drop_old(Time now) {
  std::erase_if(codes_, [&](const auto& one) { return one.second.until <= now; });
}

}  // namespace rubato::http

// The daemon that the user has logged in to: its address, the CA of its certificate and a token, in
// a file that only the user may read.
#pragma once

#include <optional>
#include <string>

#include "rubato/base/result.h"

namespace rubato::cmd {

struct Login {
  std::string server;  // "https://cluster.example.org:8443"
  std::string ca;      // PEM; empty: the CAs of this machine
  std::string token;
};

// nullopt: the user has not logged in.
[[nodiscard]] Result<std::optional<Login>> read_login();
[[nodiscard]] Result<void> write_login(const Login& login);
// False if there was none.
[[nodiscard]] Result<bool> remove_login();
// $XDG_CONFIG_HOME/rubato/login.json, else ~/.config/rubato/login.json.
[[nodiscard]] Result<std::string> login_path();

// The content of a small file, such as a CA's certificate.
[[nodiscard]] Result<std::string> read_small_file(const std::string& path, const char* what);

}  // namespace rubato::cmd

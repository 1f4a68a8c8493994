// A file layer for SQLite that asks a function before every change of a file, and then passes it on
// to the usual one: tests use it to let a disk fill up or fail, or a process die, at any moment.
#pragma once

#include <cstring>
#include <functional>
#include <new>
#include <sqlite3.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace rubato::journal {

class WatchedVfs {
 public:
  // Told "write", "sync", "truncate" or "delete". SQLITE_OK lets it happen, another code is what
  // SQLite gets instead, and kDieInTheMiddle does half of a write and ends the process.
  using Judge = std::function<int(std::string_view change)>;
  static constexpr int kDieInTheMiddle = -1;
  static constexpr int kDead = 99;  // the exit code

  WatchedVfs(std::string name, Judge judge) : name_(std::move(name)), judge_(std::move(judge)) {
    usual_ = sqlite3_vfs_find(nullptr);
    vfs_ = *usual_;
    vfs_.zName = name_.c_str();
    vfs_.pAppData = this;
    vfs_.pNext = nullptr;
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + usual_->szOsFile;
    vfs_.xOpen = [](sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out) {
      return self(vfs).open(path, file, flags, out);
    };
    vfs_.xDelete = [](sqlite3_vfs* vfs, const char* path, int sync) {
      WatchedVfs& me = self(vfs);
      const int code = me.judge_("delete");
      return code != SQLITE_OK ? code : me.usual_->xDelete(me.usual_, path, sync);
    };
    vfs_.xAccess = [](sqlite3_vfs* vfs, const char* path, int flags, int* out) {
      return self(vfs).usual_->xAccess(self(vfs).usual_, path, flags, out);
    };
    vfs_.xFullPathname = [](sqlite3_vfs* vfs, const char* path, int size, char* out) {
      return self(vfs).usual_->xFullPathname(self(vfs).usual_, path, size, out);
    };
    sqlite3_vfs_register(&vfs_, 0);
  }
  ~WatchedVfs() { sqlite3_vfs_unregister(&vfs_); }
  WatchedVfs(const WatchedVfs&) = delete;
  WatchedVfs& operator=(const WatchedVfs&) = delete;

 private:
  // The usual file lies behind it in the same memory.
  struct File {
    sqlite3_file base;
    WatchedVfs* owner;
    [[nodiscard]] sqlite3_file* usual() { return reinterpret_cast<sqlite3_file*>(this + 1); }
    [[nodiscard]] const sqlite3_io_methods& methods() { return *usual()->pMethods; }
  };
  static WatchedVfs& self(sqlite3_vfs* vfs) { return *static_cast<WatchedVfs*>(vfs->pAppData); }
  static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }

  int open(const char* path, sqlite3_file* file, int flags, int* out) {
    File* mine = new (file) File{{}, this};
    const int code = usual_->xOpen(usual_, path, mine->usual(), flags, out);
    mine->base.pMethods = mine->usual()->pMethods == nullptr ? nullptr : &methods();
    return code;
  }

  static const sqlite3_io_methods& methods() {
    static const sqlite3_io_methods methods = [] {
      sqlite3_io_methods m{};
      m.iVersion = 2;  // without memory mapping of the database
      m.xClose = [](sqlite3_file* f) { return of(f).methods().xClose(of(f).usual()); };
      m.xRead = [](sqlite3_file* f, void* to, int size, sqlite3_int64 at) {
        return of(f).methods().xRead(of(f).usual(), to, size, at);
      };
      m.xWrite = [](sqlite3_file* f, const void* from, int size, sqlite3_int64 at) {
        const int code = of(f).owner->judge_("write");
        if (code == kDieInTheMiddle) {
          of(f).methods().xWrite(of(f).usual(), from, size / 2, at);
          _exit(kDead);
        }
        return code != SQLITE_OK ? code : of(f).methods().xWrite(of(f).usual(), from, size, at);
      };
      m.xTruncate = [](sqlite3_file* f, sqlite3_int64 size) {
        const int code = of(f).owner->judge_("truncate");
        return code != SQLITE_OK ? code : of(f).methods().xTruncate(of(f).usual(), size);
      };
      m.xSync = [](sqlite3_file* f, int flags) {
        const int code = of(f).owner->judge_("sync");
        return code != SQLITE_OK ? code : of(f).methods().xSync(of(f).usual(), flags);
      };
      m.xFileSize = [](sqlite3_file* f, sqlite3_int64* size) {
        return of(f).methods().xFileSize(of(f).usual(), size);
      };
      m.xLock = [](sqlite3_file* f, int level) {
        return of(f).methods().xLock(of(f).usual(), level);
      };
      m.xUnlock = [](sqlite3_file* f, int level) {
        return of(f).methods().xUnlock(of(f).usual(), level);
      };
      m.xCheckReservedLock = [](sqlite3_file* f, int* out) {
        return of(f).methods().xCheckReservedLock(of(f).usual(), out);
      };
      m.xFileControl = [](sqlite3_file* f, int op, void* argument) {
        return of(f).methods().xFileControl(of(f).usual(), op, argument);
      };
      m.xSectorSize = [](sqlite3_file* f) { return of(f).methods().xSectorSize(of(f).usual()); };
      m.xDeviceCharacteristics = [](sqlite3_file* f) {
        return of(f).methods().xDeviceCharacteristics(of(f).usual());
      };
      m.xShmMap = [](sqlite3_file* f, int page, int size, int extend, void volatile** out) {
        return of(f).methods().xShmMap(of(f).usual(), page, size, extend, out);
      };
      m.xShmLock = [](sqlite3_file* f, int offset, int n, int flags) {
        return of(f).methods().xShmLock(of(f).usual(), offset, n, flags);
      };
      m.xShmBarrier = [](sqlite3_file* f) { of(f).methods().xShmBarrier(of(f).usual()); };
      m.xShmUnmap = [](sqlite3_file* f, int remove) {
        return of(f).methods().xShmUnmap(of(f).usual(), remove);
      };
      return m;
    }();
    return methods;
  }

  std::string name_;
  Judge judge_;
  sqlite3_vfs* usual_ = nullptr;
  sqlite3_vfs vfs_{};
};

}  // namespace rubato::journal

// A wall clock that is off by WALL_OFFSET seconds, for programs that are started with this library in LD_PRELOAD.
// Time namespaces move monotonic clocks only.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
  const char* text = getenv("WALL_OFFSET");
  return text == NULL ? 0 : (time_t)atoll(text);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  const int result = (int)syscall(SYS_gettimeofday, now, zone);
  if (result == 0 && now != NULL) now->tv_sec += offset();
  return result;
}

time_t time(time_t* store) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (store != NULL) *store = now.tv_sec;
  return now.tv_sec;
}

/* KL_PRAGMA(HLS ...): a Vitis HLS pragma where KL_HLS is defined (the Vitis recipe does), else nothing.
 * Other synthesis tools and compilers reject or warn about unknown pragmas. */
#ifndef KL_PRAGMA_H
#define KL_PRAGMA_H

#ifdef KL_HLS
#define KL_PRAGMA_TEXT(text) _Pragma(#text)
#define KL_PRAGMA(text)      KL_PRAGMA_TEXT(text)
#else
#define KL_PRAGMA(text)
#endif

#endif

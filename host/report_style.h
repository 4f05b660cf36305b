/* The report page's style sheet. Colours are Okabe-Ito's, told apart by colour-blind readers too; every
 * coloured mark also has a word or a number beside it. Classes: v0.. a verdict, s0.. a stage, pf and df
 * published and dropped, kl the kill line. */
#ifndef REPORT_STYLE_H
#define REPORT_STYLE_H

extern const char report_css[];

#endif
